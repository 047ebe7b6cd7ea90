"""Questions that several rules ask of a script."""

import ast

from gpu_plan.executor.doctor.flow.events import Call, Flow

_ACCELERATOR_COLLECTIVES = frozenset(
    {
        "backward", "gather", "gather_for_metrics", "reduce", "wait_for_everyone", "save_state", "load_state",
        "pad_across_processes", "prepare", "check_trigger", "get_state_dict", "save_model",
    }
)  # fmt: skip
_TORCH_COLLECTIVES = frozenset(
    {
        "all_reduce", "all_gather", "broadcast", "barrier", "reduce_scatter", "all_gather_object", "gather",
        "broadcast_object_list", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all",
    }
)  # fmt: skip
_UTILS = frozenset({"gather", "gather_object", "reduce", "broadcast", "broadcast_object_list", "wait_for_everyone"})


def is_collective(call: Call) -> bool:
    """Whether every rank has to make the call, or the others wait for ever."""
    if call.receiver.kind in {"accelerator", "state"}:
        return call.method in _ACCELERATOR_COLLECTIVES
    if call.name.startswith("torch.distributed."):
        return call.method in _TORCH_COLLECTIVES
    return call.name.startswith("accelerate.utils.") and call.method in _UTILS


def is_backward(call: Call) -> bool:
    """Whether the call runs a backward pass, through an accelerator, an engine or torch."""
    return (call.method == "backward" and call.receiver.kind not in {"", "output"}) or is_plain_backward(call)


def is_plain_backward(call: Call) -> bool:
    """`loss.backward()` on a tensor, a scaled loss included."""
    if call.method != "backward" or call.receiver.kind in {"accelerator", "engine", "model", "trainer", "instance"}:
        return False
    # An engine's or a manager's backward is given the loss; a tensor's is not.
    positional = bool(call.node.args)
    return isinstance(call.node.func, ast.Attribute) and not positional and not call.name.startswith("torch.autograd")


def training_loops(flow: Flow) -> dict[ast.stmt, list[Call]]:
    """Loops in which a backward pass runs, each with its backward calls."""
    found: dict[ast.stmt, list[Call]] = {}
    for call in flow.calls_of("backward"):
        if is_backward(call):
            for loop in call.context.loops:
                found.setdefault(loop.node, []).append(call)
    return found


def wraps_models(flow: Flow) -> bool:
    """Whether the script wraps models for several ranks itself."""
    return bool(flow.wrapped)


def is_distributed(flow: Flow) -> bool:
    """Whether the script itself deals with several ranks: an accelerator, or torch's process group."""
    return flow.uses_accelerator or any(call.method == "init_process_group" for call in flow.calls)


def accumulation_of(flow: Flow) -> ast.expr | None:
    """What Accelerators are told of accumulation: the expression, or None where it is 1 or not told."""
    for call in flow.calls_of("Accelerator"):
        for name in ("gradient_accumulation_steps", "gradient_accumulation_plugin"):
            given = call.keyword(name)
            if given is not None and not (isinstance(given, ast.Constant) and given.value in (1, None)):
                return given
    return None


def text(node: ast.AST, limit: int = 60) -> str:
    """Source of `node` on one line, shortened."""
    line = " ".join(ast.unparse(node).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
