"""Devices: who places what, and environment variables that the launcher owns."""

import ast
from collections.abc import Iterator

from gpu_plan.executor.doctor.flow import Flow
from gpu_plan.executor.doctor.flow import values as v
from gpu_plan.executor.doctor.flow.events import Call, Setting
from gpu_plan.executor.doctor.flow.names import dotted
from gpu_plan.executor.doctor.intent import Intent
from gpu_plan.executor.doctor.rules.common import is_distributed, text
from gpu_plan.executor.doctor.rules.rule import Hit, Rule

_OWNED = frozenset(
    {"CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)
_SPAWNS = frozenset({"torch.multiprocessing.spawn", "mp.spawn", "torch.multiprocessing.start_processes"})
_OWN_STARTS = frozenset({"notebook_launcher", "debug_launcher", "Process", "spawn", "start_processes"})


def _device_words(call: Call) -> list[ast.expr]:
    given = [*call.node.args, *(word.value for word in call.node.keywords if word.arg == "device")]
    return [node for node in given if not _is_dtype(node)]


def _is_dtype(node: ast.expr) -> bool:
    name = ast.unparse(node).lower()
    words = ("dtype", "float", "half", "bfloat", "precision", "torch.int", "torch.long", "torch.bool")
    return any(word in name for word in words)


def _moves(call: Call) -> str | None:
    """The device that a `.to` or `.cuda` names; None where it names none (a dtype)."""
    if call.method == "cuda":
        return f"cuda:{text(call.node.args[0])}" if call.node.args else "cuda"
    if call.method != "to":
        return None
    words = _device_words(call)
    if not words:
        return None
    node = words[0]
    return str(node.value) if isinstance(node, ast.Constant) else text(node)


def _owned_device(call: Call) -> bool:
    """Whether the device named is the rank's own, or that of another tensor or module."""
    values = [*call.arguments, call.keywords.get("device", v.NOTHING)]
    if any(value.marks & {v.OWN_DEVICE, v.PER_RANK} for value in values):
        return True
    return any(dotted(node).endswith("device") and "." in dotted(node) for node in _device_words(call))


def _moved_after_prepare(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls_of("to", "cuda", "cpu"):
        held = call.receiver
        where = "cpu" if call.method == "cpu" else _moves(call)
        if where is None or not held.has(v.PREPARED):
            continue
        if held.kind == "model" and not held.has(v.UNWRAPPED):
            own = _owned_device(call) or call.method == "cuda"
            mild = own and intent.shards_model is None
            yield Hit(
                line=call.line, what=f"{text(call.node)} moves a prepared model", severity="warning" if mild else None
            )
        elif held.kind == "batch" and where not in {"cpu"} and not _owned_device(call) and where.startswith("cuda"):
            fixed = where.startswith("cuda:") and where[5:].isdigit()
            what = f"{text(call.node)} moves a batch of a prepared loader"
            yield Hit(line=call.line, what=what, severity="error" if fixed and intent.several_ranks else "note")


def _fixed_device(flow: Flow, intent: Intent) -> Iterator[Hit]:
    if not is_distributed(flow):
        return
    for call in flow.calls_of("to", "cuda", "set_device", "device"):
        if call.receiver.kind == "batch" or call.receiver.has(v.PREPARED):
            continue
        named = _moves(call) if call.method in {"to", "cuda"} else None
        if call.name in {"torch.cuda.set_device", "torch.device"} and call.node.args:
            constant = call.node.args[0]
            named = str(constant.value) if isinstance(constant, ast.Constant) else None
            named = f"cuda:{named}" if named is not None and named.isdigit() else named
        if named is not None and named.startswith("cuda:") and named[5:].isdigit():
            yield Hit(line=call.line, what=f"{text(call.node)} names one GPU for every rank")


def _device_games(flow: Flow, intent: Intent) -> Iterator[Hit]:
    spawns = any(call.method in _OWN_STARTS for call in flow.calls)
    for event in flow.events:
        if not isinstance(event, Setting) or event.name not in _OWNED or event.conditional or spawns:
            continue
        if event.name == "CUDA_VISIBLE_DEVICES" and not is_distributed(flow):
            if flow.notebook:
                continue
            yield Hit(line=_line(event), what=f"the script sets {event.name}", severity="warning")
        else:
            yield Hit(line=_line(event), what=f"the script sets {event.name} over what the launcher gave each rank")


def _line(event: Setting) -> int:
    return int(getattr(event.node, "lineno", 1))


def _auto_map(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls:
        if call.receiver.kind == "accelerator" and call.method in {"prepare", "prepare_model"}:
            for value in v.flat(call.result):
                if value.kind == "model" and value.has(v.AUTO_MAP):
                    yield Hit(line=call.line, what=f"{text(call.node)} is given a model loaded with device_map='auto'")


def _data_parallel(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls_of("DataParallel"):
        if call.name.startswith("torch.nn") and is_distributed(flow) and flow.uses_accelerator:
            yield Hit(line=call.line, what=f"{text(call.node)} in a script that runs one process per GPU")


def _own_processes(flow: Flow, intent: Intent) -> Iterator[Hit]:
    for call in flow.calls:
        if call.name in _SPAWNS or call.name.endswith("multiprocessing.spawn"):
            yield Hit(line=call.line, what=f"{text(call.node)} starts the ranks itself")


def _second_group(flow: Flow, intent: Intent) -> Iterator[Hit]:
    made = next((call for call in flow.calls if call.result.kind == "accelerator"), None)
    if made is None:
        return
    after = flow.events[flow.events.index(made) :]
    for call in after:
        if not isinstance(call, Call) or call.method != "init_process_group":
            continue
        asked = any("is_initialized" in text(test.node, 200) for test in call.context.tests)
        if call.name.startswith("torch.distributed") and not asked:
            yield Hit(line=call.line, what=f"{text(call.node)} after the Accelerator has made the process group")


RULES = (
    Rule(
        id="moved-after-prepare",
        severity="error",
        why="prepare has placed it on the rank's own device; moving it undoes offload and shards, or crowds one GPU",
        fix="drop the call; where a tensor must be moved, use accelerator.device",
        check=_moved_after_prepare,
        several_ranks=False,
    ),
    Rule(
        id="fixed-device",
        severity="error",
        why="all ranks of a node work on that one GPU: out of memory, or NCCL's duplicate-GPU error",
        fix="use accelerator.device, or the GPU numbered by LOCAL_RANK",
        check=_fixed_device,
    ),
    Rule(
        id="device-games",
        severity="error",
        why="the launcher sets it for each rank before Python starts; changed inside, ranks share a GPU or never meet",
        fix="drop the line and choose GPUs when launching",
        check=_device_games,
    ),
    Rule(
        id="device-map-auto",
        severity="error",
        why="every rank would spread the whole model over all GPUs; Accelerate refuses it in any distributed mode",
        fix="load without device_map (or with {'': accelerator.device}) and let prepare place the model",
        check=_auto_map,
    ),
    Rule(
        id="data-parallel",
        severity="error",
        why="each of the ranks would copy its model to every GPU",
        fix="drop DataParallel: accelerator.prepare wraps the model for this rank's GPU",
        check=_data_parallel,
    ),
    Rule(
        id="own-processes",
        severity="warning",
        why="under a launcher that starts one process per GPU, each of these would start all ranks again",
        fix="read RANK and LOCAL_RANK from the environment, and let the launcher start the processes",
        check=_own_processes,
    ),
    Rule(
        id="second-process-group",
        severity="error",
        why="torch refuses to initialise the default process group twice",
        fix="drop it, or call it before Accelerator() is made",
        check=_second_group,
    ),
)
