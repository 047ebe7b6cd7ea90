"""FSDP2's passes placed once for all ranks that differ in sizes alone: other counts of ranks and of replicas.

What a pass takes and when hangs on the step, on the units and on types; only bytes hang on how many ranks share them. A
`NumberedLayout` has passes placed with the numbers of sizes in place of them, and each rank's own `sizes_of` stand
behind those numbers.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, count

import numpy as np

from gpu_plan.planner.memory.stream.placing import Handle, Part
from gpu_plan.planner.strategy.fsdp2 import float8 as fsdp_float8
from gpu_plan.planner.strategy.fsdp2 import host as fsdp_host
from gpu_plan.planner.strategy.fsdp2.layout import Layout
from gpu_plan.planner.strategy.fsdp2.passes import Passes, Unsharded
from gpu_plan.planner.strategy.fsdp2.units import Wrapping
from gpu_plan.planner.trace.events import IntArray, StepTrace
from gpu_plan.planner.trace.remembered import of_trace


class NumberedLayout(Layout):
    """The layout of a rank, whose sizes are their places in what `sizes_of` gives; 0 stands for nothing."""

    def __init__(self, layout: Layout, wrap: Wrapping) -> None:
        super().__init__(layout.context, layout.regime, wrap)
        numbers = count(1)
        names = [unit.name for unit in self.units]
        self.unsharded_bytes = [next(numbers) for _ in layout.trace.parameters]
        self.gradient_bytes = [next(numbers) for _ in layout.trace.parameters]
        self._gathered = {name: next(numbers) for name in names}
        self._cast_in = {unit.name: next(numbers) if layout.cast_in(unit) else 0 for unit in self.units}
        self._reduced_whole = {name: next(numbers) for name in names}
        self._reduced_shards = {name: (next(numbers), next(numbers)) for name in names}
        if self.float8:
            self._float8_shards = {unit.name: _cast_shards(layout.float8_shards(unit), numbers) for unit in self.units}
        if self.on_host:
            self._host_shards = {unit.name: _host_shards(layout.host_shards(unit), numbers) for unit in self.units}


def _cast_shards(shards: Sequence[fsdp_float8.CastShard], numbers: Iterator[int]) -> list[fsdp_float8.CastShard]:
    return [fsdp_float8.CastShard(wide=next(numbers), cast=next(numbers)) for _ in shards]


def _host_shards(shards: Sequence[fsdp_host.HostShard], numbers: Iterator[int]) -> list[fsdp_host.HostShard]:
    return [fsdp_host.HostShard(stored=next(numbers), gathered=next(numbers), casts=one.casts) for one in shards]


def sizes_of(layout: Layout) -> IntArray:
    """A rank's sizes in the order in which a `NumberedLayout` numbers them."""
    units = layout.units
    found: list[int] = [0, *layout.unsharded_bytes, *layout.gradient_bytes]
    found += map(layout.gathered, units)
    found += filter(None, map(layout.cast_in, units))
    found += map(layout.reduced_whole, units)
    found += chain.from_iterable((layout.reduced_shard(unit), layout.gradient_shard(unit)) for unit in units)
    if layout.float8:
        found += (size for unit in units for one in layout.float8_shards(unit) for size in (one.wide, one.cast))
    if layout.on_host:
        found += (size for unit in units for one in layout.host_shards(unit) for size in (one.stored, one.gathered))
    return np.asarray(found, dtype=np.int64)


@of_trace
def _structures(_: StepTrace) -> dict[object, tuple[Part, list[Handle]]]:
    """What ranks of a trace have placed so far: by what tells their passes apart, and the gradient shards among it."""
    return {}


def place_passes(layout: Layout, wrap: Wrapping) -> list[Handle]:
    """All that a rank's passes take, its weights being placed; the reduced gradients that stand until zero_grad."""
    known, key = _structures(layout.trace), _key(layout, wrap)
    if key not in known:
        known[key] = _placed(NumberedLayout(layout, wrap))
    part, shards = known[key]
    further = layout.builder.again(part, sizes_of(layout))
    return [Handle(shard + further) for shard in shards]


def _key(layout: Layout, wrap: Wrapping) -> object:
    """All that decides what is placed, but for bytes."""
    context = layout.context
    return (
        wrap,
        context.setting("fsdp.reshard_after_forward", "true"),
        (context.shard_ranks == 1, context.expert_ranks == 1, context.replicate == 1),
        len(layout.builder.passes),
        context.reduces_each,
        layout.on_host,
        (layout.master, layout.reduce, layout.regime.trained),
        layout.float8,
        layout.dtypes,
    )


def _placed(layout: Layout) -> tuple[Part, list[Handle]]:
    builder, passes = layout.builder, Passes(layout)
    mark = builder.mark()
    unsharded: dict[str, Unsharded] = {}
    for in_pass in builder.passes:
        unsharded = passes.forward(in_pass)
        passes.backward(in_pass, unsharded)
        passes.add_gradients(in_pass)
    return builder.since(mark), passes.gradient_shards
