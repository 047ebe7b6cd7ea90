"""A trace of some layers as that of equal ones with other numbers. Imports no torch."""

import re
from dataclasses import replace

from gpu_plan.planner.trace.events import StepTrace


def renumbered(trace: StepTrace, layers: str, made: range, by: int) -> StepTrace:
    """`trace`, of the layers `made` in the list called `layers`, with every one of them `by` further behind."""
    if by == 0:
        return trace
    pattern = re.compile(rf"^{re.escape(layers)}\.(\d+)(?=\.|$)")

    def moved(name: str) -> str:
        found = pattern.match(name)
        if found is None or int(found[1]) not in made:
            return name
        return f"{layers}.{int(found[1]) + by}{name[found.end() :]}"

    return replace(
        trace,
        modules=[moved(name) for name in trace.modules],
        parameters=[replace(one, name=moved(one.name), module=moved(one.module)) for one in trace.parameters],
        buffer_bytes=[(moved(name), size) for name, size in trace.buffer_bytes],
        layout=replace(trace.layout, blocks=tuple(moved(name) for name in trace.layout.blocks)),
    )
