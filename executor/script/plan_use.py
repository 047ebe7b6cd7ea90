"""Which parts of the plan a script asks for itself: `current_plan()`, or the environment."""

import ast

from gpu_plan.executor import names
from gpu_plan.executor.script.loop import dotted, imported_names
from gpu_plan.executor.script.read import Script

_BY_VARIABLE = {
    names.MICRO_BATCH_SIZE: "micro_batch_size",
    names.GRADIENT_ACCUMULATION_STEPS: "gradient_accumulation_steps",
    names.SEQUENCE_LENGTH: "sequence_length",
    names.RESUME_FROM: "resume_from",
}


def asks_for(script: Script) -> frozenset[str]:
    """Fields of CurrentPlan that the script reads, as attributes of a plan or as the variables behind them."""
    found = {
        field
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (field := _BY_VARIABLE.get(node.value))
    }
    imported = imported_names(script.tree)
    if imported.get("current_plan", "").partition(".")[0] == "gpu_plan" or "gpu_plan" in imported:
        plans = _plan_names(script.tree)
        found |= {
            node.attr
            for node in ast.walk(script.tree)
            if isinstance(node, ast.Attribute) and (dotted(node.value) in plans or _is_plan(node.value))
        }
    return frozenset(found)


def _plan_names(tree: ast.Module) -> set[str]:
    """Variables that hold a plan: what an expression with a call of `current_plan` is assigned to."""
    found = set()
    for node in ast.walk(tree):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) else None
        if value is None or not any(_is_plan(inner) for inner in ast.walk(value)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
        found |= {dotted(target) for target in targets}
    return found


def _is_plan(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "current_plan"
