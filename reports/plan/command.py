"""A plan's shell command: what has to be done before it, and lines of it that can still be copied."""

import re
from collections.abc import Mapping

from gpu_plan.planner.plan.document import Candidate, PlanDocument
from gpu_plan.planner.strategy.known import known_traits

_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*'|["'])+""")


def before_launch(document: PlanDocument, shown: Candidate) -> str | None:
    """What a captured script lacks for this plan's command; None where it can be launched as it is.

    A plain loop that wraps its model in nothing runs whole on each rank it is started on.
    """
    script = document.workload.get("script")
    ranks = shown.strategy.world_size
    if document.workload.get("stack") != "plain" or not isinstance(script, Mapping) or ranks == 1:
        return None
    if script.get("wrapper") is not None:
        return None
    traits = known_traits(shown.strategy.name)
    wrapped_by = sorted(traits.wrapped_by) if traits is not None else []
    change = "make its loop Accelerate's (accelerator.prepare)"
    if wrapped_by and not (traits is not None and traits.uses_deepspeed):
        change = f"wrap its model in {wrapped_by[-1]}, or {change}"
    return (
        f"first: the script wraps its model in nothing, so {ranks} independent jobs would run; {change}, or plan for"
        " one GPU"
    )


def command_lines(command: str, width: int) -> list[str]:
    """`command` in lines of at most `width` where its words allow it, all but the last ending in ` \\`.

    Breaks before options, so that an option stays with its value; never inside a word.
    """
    if len(command) <= width:
        return [command]
    lines: list[str] = []
    current = ""
    for chunk in _chunks(command):
        longer = f"{current} {chunk}" if current else chunk
        if current and len(longer) > width - 2:
            lines.append(current + " \\")
            current = "  " + chunk
        else:
            current = longer
    return [*lines, current]


def _chunks(command: str) -> list[str]:
    """Words, an option joined with the value after it."""
    chunks: list[str] = []
    for word in _WORD.findall(command):
        takes_value = bool(chunks) and re.fullmatch(r"--?[A-Za-z][\w-]*", chunks[-1])
        if takes_value and not word.startswith("-"):
            chunks[-1] += " " + word
        else:
            chunks.append(word)
    return chunks
