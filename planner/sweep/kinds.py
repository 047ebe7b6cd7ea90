"""The sweeps behind two plots: more GPUs, and longer sequences in larger micro batches. Pure."""

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.planner.sweep.axes import Axis

_SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_LONGER = 4
"""Sequences are drawn up to so many times the job's own."""
_MOST_NODES = 8


def scaling_axes(document: PlanDocument) -> tuple[Axis, ...]:
    """One GPU, then twice as many each time: up to four times the cluster, at most eight of its nodes."""
    cluster = document.cluster
    gpu, per_node = str(cluster["gpu"]), _whole(cluster["gpus_per_node"])
    total = _whole(cluster["gpus"])
    if gpu == "cpu":
        raise UsageError("--plot scaling draws GPUs: name some in --gpus")
    specs, count = [], 1
    while count <= per_node:
        specs.append(f"{count}x{gpu}")
        count *= 2
    if f"{per_node}x{gpu}" not in specs:
        specs.append(f"{per_node}x{gpu}")
    nodes = 2
    while nodes <= _MOST_NODES and nodes * per_node <= 4 * max(total, per_node):
        specs.append(f"{nodes}x{per_node}x{gpu}")
        nodes *= 2
    return (Axis(name="gpus", values=tuple(specs)),)


def sequence_axes(document: PlanDocument) -> tuple[Axis, ...]:
    """Sequence lengths by powers of two up to the model's positions, and micro batches 1 to 8."""
    if not document.model.has_sequence:
        raise UsageError(f"--plot sequence: {document.model.id} has no sequence")
    own = document.workload.get("seq_len")
    longest = min(document.model.max_positions or _SEQUENCES[-1], _LONGER * (own if isinstance(own, int) else 4096))
    lengths = [length for length in _SEQUENCES if length <= longest] or [longest]
    return (
        Axis(name="seq-len", values=tuple(map(str, lengths))),
        Axis(name="micro-batch", values=("1", "2", "4", "8")),
    )


def sequence_values(document: PlanDocument) -> dict[str, object] | None:
    """Options by name that hold the best plan fast while its sequences grow; None where nothing fits."""
    if document.best is None:
        return None
    choice = document.best.strategy
    return {"strategy": choice.name, "offload": choice.offload, "checkpointing": choice.checkpointing}


def _whole(value: object) -> int:
    assert isinstance(value, int)  # the document has checked it
    return value
