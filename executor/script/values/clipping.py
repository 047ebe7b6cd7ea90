"""How a script clips its gradients, read from its syntax tree: DeepSpeed clips by its file alone."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.executor.script.loop import dotted
from gpu_plan.executor.script.option import ScriptOptions, keywords
from gpu_plan.executor.script.read import Script
from gpu_plan.executor.script.values.literals import Literals

_NORM, _VALUE = "clip_grad_norm_", "clip_grad_value_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One call."""

    line: int
    norm: float | None
    """0 where the script switches it off so; None where only a run can tell, and for one by value."""
    by_value: bool = False


def clips_of(script: Script, options: ScriptOptions, words: Sequence[str]) -> tuple[Clip, ...]:
    """Every call of `clip_grad_norm_` and `clip_grad_value_`, torch's or an Accelerator's, in the order of lines.

    `words` are all words after the script, by which a norm that is an option of it is known.
    """
    literals = Literals(script.tree, options, words)
    found = []
    for node in ast.walk(script.tree):
        name = dotted(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in (_NORM, _VALUE):
            continue
        if name == _VALUE:
            found.append(Clip(line=node.lineno, norm=None, by_value=True))
            continue
        value = node.args[1] if len(node.args) > 1 else keywords(node).get("max_norm")
        found.append(Clip(line=node.lineno, norm=literals.number(value)))
    return tuple(sorted(found, key=lambda clip: clip.line))
