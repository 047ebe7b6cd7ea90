"""What FSDP2 sends between ranks, and between device and host, unit by unit."""

from typing import Literal

from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.fsdp2 import host as fsdp_host
from gpu_plan.planner.strategy.fsdp2.layout import Layout
from gpu_plan.planner.strategy.fsdp2.units import Unit

_GATHERING = (6, 18)
"""Operators of one all-gather, counted in a run of torch 2.13's own hooks (tests/trace/test_fsdp2_hooks.py; torch
_fsdp_collectives.py: foreach_all_gather, foreach_all_gather_copy_out). Fewest: two buffers, copies in and out, the
all-gather. Most: what only changes shapes and what names spans for a profiler too, and a view of each parameter."""
_REDUCING = (4, 10)
"""The same of one reduce-scatter (foreach_reduce): two buffers, the copy in, the reduce-scatter; and a view each."""


def collectives(layout: Layout) -> tuple[Collective, ...]:
    units = [unit for unit in layout.units if layout.ranks(unit) > 1]
    gathers = [
        Collective(
            kind="all_gather",
            bytes=layout.gathered(unit),
            overlap=True,
            phase=phase,
            per="micro_step",
            ranks=layout.ranks(unit),
            stride=_stride(layout, unit),
            issued=_issued(_GATHERING, len(unit.parameters)),
        )
        for unit in units
        for phase in (("forward", "backward") if unit.reshard_after_forward else ("forward",))
    ]
    reduces = _reductions(layout)
    scatters = [
        Collective(
            kind="reduce_scatter",
            bytes=layout.reduced_whole(unit),
            overlap=True,
            phase="backward",
            per=reduces,
            ranks=layout.ranks(unit),
            stride=_stride(layout, unit),
            issued=_issued(_REDUCING, len(layout.reduced(unit))),
        )
        for unit in units
    ]
    return (*gathers, *scatters, *_replica_sums(layout), *_transfers(layout))


def _reductions(layout: Layout) -> Literal["micro_step", "step"]:
    return "micro_step" if layout.context.reduces_each else "step"


def _issued(of_call: tuple[int, int], parameters: int) -> tuple[int, int]:
    fewest, most = of_call
    return fewest, most + parameters


def _stride(layout: Layout, unit: Unit) -> int:
    """transformers numbers ranks (replicate, fsdp, tp), for experts (replicate, efsdp, ep), the last one fastest."""
    return layout.context.expert_parallel if unit.experts else layout.context.tensor_parallel


def _transfers(layout: Layout) -> list[Collective]:
    """Copies between host and device under offload."""
    if not layout.on_host:
        return []
    weights = [(unit, sum(layout.stored_bytes[index] for index in unit.parameters)) for unit in layout.units]
    again = [size for unit, size in weights if unit.reshard_after_forward]
    gradients = [layout.gradient_shard(unit) for unit in layout.units if layout.reduced(unit)]
    return fsdp_host.transfers([size for _, size in weights], again, gradients)


def _replica_sums(layout: Layout) -> list[Collective]:
    """HSDP sums the reduced shards over the replicas, unit by unit."""
    context = layout.context
    if context.replicate == 1:
        return []
    return [
        Collective(
            kind="all_reduce",
            bytes=layout.reduced_shard(unit),
            overlap=True,
            phase="backward",
            per=_reductions(layout),
            ranks=context.replicate,
            across_nodes=context.nodes > 1,
            axis="replicas",
        )
        for unit in layout.units
    ]
