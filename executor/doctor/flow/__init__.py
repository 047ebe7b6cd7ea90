"""What a script does with accelerators, models, loaders and losses, read from its syntax tree without running it.

    walk, functions              statements in the order of running, the script's own functions entered where called
    expressions, calls, guards   what expressions give, whom calls call, which ranks a test lets through
    make, names, scope, values   what is known of a value: the reader's knowledge of torch, accelerate, transformers
    events                       the result: calls, settings, accesses and exits with their circumstances

`read_flow(script)` gives a `Flow` of `events`; the rules read these, `names.dotted` and `values`. No torch.
"""

import ast
import sys

from gpu_plan.executor.doctor.flow.events import Flow
from gpu_plan.executor.doctor.flow.names import imports_of
from gpu_plan.executor.doctor.flow.walk import Walker
from gpu_plan.executor.script.read import Script

__all__ = ["Flow", "read_flow"]


def read_flow(script: Script) -> Flow:
    """The calls, accesses, exits and settings of `script`, in the order in which they would happen."""
    walker = Walker(imports_of(script.tree))
    walker.flow.notebook = script.is_notebook
    walker.flow.chosen = _chosen(script.tree)
    walker.flow.cuts_to_length = any(_cuts(node) for node in ast.walk(script.tree))
    limit = sys.getrecursionlimit()
    # Functions are entered where they are called: a deep script takes many frames.
    sys.setrecursionlimit(max(limit, 20_000))
    try:
        walker.run(script.tree)
    except RecursionError:
        walker.flow.truncated = True
    finally:
        sys.setrecursionlimit(limit)
    return walker.flow


def _chosen(tree: ast.Module) -> set[int]:
    """Attributes inside `x.module if hasattr(x, "module") else x`."""
    asking = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp)
        and any(word in ast.unparse(node.test) for word in ("hasattr", "isinstance", "num_"))
    ]
    return {id(inner) for node in asking for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _cuts(node: ast.AST) -> bool:
    """Whether `node` is a slice up to some length: `x[: len(y)]`, `x[: y.num_rows - seen]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice) or node.slice.upper is None:
        return False
    upper = ast.unparse(node.slice.upper)
    return "len(" in upper or "num_rows" in upper or "samples_seen" in upper or "remainder" in upper
