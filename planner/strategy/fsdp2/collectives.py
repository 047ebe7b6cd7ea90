"""What FSDP2 sends between ranks, and between device and host, unit by unit."""

from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import nbytes
from gpu_plan.planner.strategy.fsdp2 import host as fsdp_host
from gpu_plan.planner.strategy.fsdp2.layout import Layout


def collectives(layout: Layout) -> tuple[Collective, ...]:
    ranks = layout.context.shard_ranks
    gathers = [
        Collective(
            kind="all_gather",
            bytes=layout.gathered(unit),
            overlap=True,
            phase=phase,
            per="micro_step",
            ranks=ranks,
            stride=layout.context.tensor_parallel,
        )
        for unit in layout.units
        for phase in (("forward", "backward") if unit.reshard_after_forward else ("forward",))
    ]
    scatters = [
        Collective(
            kind="reduce_scatter",
            bytes=nbytes(sum(layout.shards[i].unsharded_numel for i in layout.reduced(unit)), layout.reduce),
            overlap=True,
            phase="backward",
            per="step",
            ranks=ranks,
            stride=layout.context.tensor_parallel,
        )
        for unit in layout.units
    ]
    return (*gathers, *scatters, *_replica_sums(layout), *_transfers(layout))


def _transfers(layout: Layout) -> list[Collective]:
    """Copies between host and device under offload."""
    if not layout.on_host:
        return []
    weights = [(unit, sum(layout.stored_bytes(index) for index in unit.parameters)) for unit in layout.units]
    again = [size for unit, size in weights if unit.reshard_after_forward]
    gradients = [layout.shard_bytes(unit, layout.master) for unit in layout.units if layout.reduced(unit)]
    return fsdp_host.transfers([size for _, size in weights], again, gradients)


def _replica_sums(layout: Layout) -> list[Collective]:
    """HSDP sums the reduced shards over the replicas, unit by unit."""
    context = layout.context
    if context.replicate == 1:
        return []
    return [
        Collective(
            kind="all_reduce",
            bytes=layout.shard_bytes(unit, layout.reduce),
            overlap=True,
            phase="backward",
            per="step",
            ranks=context.replicate,
            across_nodes=context.nodes > 1,
        )
        for unit in layout.units
    ]
