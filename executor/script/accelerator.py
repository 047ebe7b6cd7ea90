"""What a script itself gives to its Accelerator: that beats the environment."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_plan.executor.script.loop import dotted
from gpu_plan.executor.script.option import constant, keywords
from gpu_plan.executor.script.read import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorUse:
    """Calls that shape how Accelerate runs."""

    line: int = 0
    """Of the first `Accelerator(...)`; 0 where there is none."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Keyword arguments by name; None for one whose value only a run can tell."""
    accumulates: bool = False
    """Whether `accumulate(...)` is called: without it Accelerate steps on every micro batch."""
    names: frozenset[str] = frozenset()
    """Every name and attribute of the script: what a loop without Accelerate brings itself."""


def accelerator_use(script: Script) -> AcceleratorUse:
    """How the script makes and uses its Accelerator; the first one counts."""
    calls = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call)]
    made = [call for call in calls if dotted(call.func).rpartition(".")[2] == "Accelerator"]
    accumulates = any(dotted(call.func).rpartition(".")[2] == "accumulate" for call in calls)
    names = frozenset(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(script.tree)
        if isinstance(node, (ast.Name, ast.Attribute))
    )
    if not made:
        return AcceleratorUse(accumulates=accumulates, names=names)
    first = min(made, key=lambda call: call.lineno)
    arguments = {name: constant(value) for name, value in keywords(first).items()}
    return AcceleratorUse(line=first.lineno, arguments=arguments, accumulates=accumulates, names=names)
