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

        def one(_: object) -> int:
            return next(numbers)

        self.unsharded_bytes = self._by_parameter(one)
        self.gradient_bytes = self._by_parameter(one)
        self._gathered = self._by_unit(one)
        self._cast_in = self._by_unit(lambda unit: next(numbers) if layout.cast_in(unit) else 0)
        self._reduced_whole = self._by_unit(one)
        self._reduced_shards = self._by_unit(lambda _: (next(numbers), next(numbers)))
        if self.float8:
            self._float8_shards = self._by_unit(lambda unit: _cast_shards(layout.float8_shards(unit), numbers))
        if self.on_host:
            self._host_shards = self._by_unit(lambda unit: _host_shards(layout.host_shards(unit), numbers))


def _cast_shards(shards: Sequence[fsdp_float8.CastShard], numbers: Iterator[int]) -> list[fsdp_float8.CastShard]:
    return [fsdp_float8.CastShard(wide=next(numbers), cast=next(numbers)) for _ in shards]


def _host_shards(shards: Sequence[fsdp_host.HostShard], numbers: Iterator[int]) -> list[fsdp_host.HostShard]:
    return [fsdp_host.HostShard(stored=next(numbers), gathered=next(numbers), casts=one.casts) for one in shards]


def sizes_of(layout: Layout) -> IntArray:
    """A rank's sizes in the order in which a `NumberedLayout` numbers them: one of each kind."""
    units, parameters = layout.grouping.alike.units, layout.grouping.alike.parameters
    found = [0, *(layout.unsharded_bytes[i] for i in parameters), *(layout.gradient_bytes[i] for i in parameters)]
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
    """All that decides what is placed, but for bytes. A grouping is kept as long as its trace, as what is known is."""
    context = layout.context
    return (
        (context.shard_ranks == 1, context.expert_ranks == 1, context.replicate == 1),
        len(layout.builder.passes),
        context.reduces_each,
        layout.on_host,
        (layout.master, layout.reduce, layout.regime.trained),
        id(layout.grouping),
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
