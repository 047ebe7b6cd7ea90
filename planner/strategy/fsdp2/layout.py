"""What FSDP2 shards, in which types and sizes, and the order in which its units run.

Mirrors torch/distributed/fsdp/_fully_shard (torch 2.13) and accelerate utils/fsdp_utils.py: fsdp2_prepare_model.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.traced import gradient_positions, marks
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import MASTER, RankContext, nbytes
from gpu_plan.planner.strategy.fsdp2 import float8 as fsdp_float8
from gpu_plan.planner.strategy.fsdp2 import host as fsdp_host
from gpu_plan.planner.strategy.fsdp2.packed import packed_dtype, stored_as_floats
from gpu_plan.planner.strategy.fsdp2.units import ROOT, Alike, Sharding, Unit, Wrapping, alike, shard, wrap_units
from gpu_plan.planner.strategy.module_times import unit_times
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import Mark, StepTrace
from gpu_plan.planner.trace.remembered import of_trace
from gpu_plan.planner.trace.variant import Regime

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """What of a layout no count of ranks changes."""

    units: list[Unit]
    dtypes: tuple[tuple[str, str], ...]
    """Of each parameter: as it is gathered, and as its shard is kept."""
    steps: tuple[bool, ...]
    """Of each parameter: whether it gets a gradient, and so optimizer state; a trace without a step knows none."""
    reduced: dict[str, list[int]]
    """Of each unit, by name: its parameters that get a gradient."""
    alike: Alike


@of_trace
def _grouping(
    trace: StepTrace, wrap: Wrapping, reshard: bool, regime: Regime, master: str, float8: frozenset[int], wide: bool
) -> Grouping:
    """`wide`: whether what is frozen is kept in the master's type as well, where it is of floats."""
    dtypes = []
    for index, parameter in enumerate(trace.parameters):
        gathered = fsdp_float8.DTYPE if index in float8 else regime.of(parameter)
        kept = parameter.trainable or (wide and is_floating(parameter.dtype))
        dtypes.append((gathered, master if kept else gathered))
    gradients = gradient_positions(trace)
    steps = tuple(p.trainable and (not gradients or index in gradients) for index, p in enumerate(trace.parameters))
    units = wrap(trace, reshard)
    return Grouping(
        units=units,
        dtypes=tuple(dtypes),
        steps=steps,
        reduced={unit.name: [i for i in unit.parameters if steps[i]] for unit in units},
        alike=alike(trace, units, list(zip(dtypes, steps, strict=True))),
    )


class Layout:
    """One rank's units with their sizes and times; places nothing."""

    def __init__(
        self,
        context: RankContext,
        regime: Regime,
        wrap: Wrapping = wrap_units,
        builder: StreamBuilder | None = None,
    ) -> None:
        context = stored_as_floats(context)
        trace = context.trace
        self.context = context
        self.trace = trace
        self.regime = regime
        self.master = MASTER if context.precision.is_mixed and not self._keeps_adapters else regime.trained
        self.reduce = context.setting("dtype.reduce", regime.trained)
        """dtype in which gradients are reduced."""
        self.builder = builder or StreamBuilder(trace, context.accumulation_steps)
        self.float8 = fsdp_float8.gathered(context)
        reshard = context.setting("fsdp.reshard_after_forward", "true") == "true"
        self.grouping = _grouping(trace, wrap, reshard, regime, self.master, self.float8, self._prepared)
        self.units = self.grouping.units
        self.shards = self._by_parameter(self._shard)
        self.on_host = context.offload is Offload.ALL

    def _by_parameter(self, size: Callable[[int], T]) -> list[T]:
        """What holds of each parameter, asked of one of each kind."""
        alike = self.grouping.alike
        found = [size(index) for index in alike.parameters]
        return [found[kind] for kind in alike.kinds]

    def _by_unit(self, size: Callable[[Unit], T]) -> dict[str, T]:
        """What holds of each unit, by its name, asked of one of each kind."""
        alike = self.grouping.alike
        found = [size(unit) for unit in alike.units]
        return {unit.name: found[group] for unit, group in zip(self.units, alike.groups, strict=True)}

    def _shard(self, index: int) -> Sharding:
        context, parameter = self.context, self.trace.parameters[index]
        if parameter.experts:
            return shard(parameter, context.expert_ranks, context.expert_place)
        return shard(parameter, context.shard_ranks, context.shard_place)

    def ranks(self, unit: Unit) -> int:
        """Ranks that the unit is sharded over."""
        return self.context.expert_ranks if unit.experts else self.context.shard_ranks

    def gathered(self, unit: Unit) -> int:
        """Bytes of the flat all-gather output."""
        return self._gathered[unit.name]

    @cached_property
    def _gathered(self) -> dict[str, int]:
        return self._by_unit(lambda unit: sum(self.unsharded_bytes[i] for i in unit.parameters))

    def cast_in(self, unit: Unit) -> int:
        """Bytes of the shards that are gathered in another type than they are stored in, in the type of the gathering;
        without those that are cast to float8."""
        return self._cast_in[unit.name]

    @cached_property
    def _cast_in(self) -> dict[str, int]:
        def cast(unit: Unit) -> int:
            own = [i for i in unit.parameters if i not in self.float8]
            different = [i for i in own if self.stored_dtype(i) != self.gathered_dtype(i)]
            return sum(nbytes(self.shards[i].shard_numel, self.gathered_dtype(i)) for i in different)

        return self._by_unit(cast)

    @cached_property
    def unsharded_bytes(self) -> Sequence[int]:
        """Bytes of each parameter once gathered, padding included."""
        return self._by_parameter(lambda i: nbytes(self.shards[i].unsharded_numel, self.gathered_dtype(i)))

    def gathered_dtype(self, index: int) -> str:
        """MixedPrecisionPolicy.param_dtype, the parameter's own, or float8 where torchao's weights are gathered so."""
        return self.grouping.dtypes[index][0]

    def stored_dtype(self, index: int) -> str:
        """accelerate upcasts what is trained, unless there are 4-bit weights, whose adapters stay as peft or the stack
        made them (fsdp2_prepare_model: model_has_params4bit); the rest stays as it was loaded.
        """
        return self.grouping.dtypes[index][1]

    @property
    def _keeps_adapters(self) -> bool:
        """Whether adapters around a quantised base are trained in the type of the computation."""
        peft = self.context.peft
        return peft.quantises and not self.context.stack.traits.held(quantised=True, sharded=True).wide_adapters

    @property
    def _prepared(self) -> bool:
        """Whether peft's preparation has left frozen parameters in fp32, which a sharded base of floats forbids."""
        quantised = self.context.peft.quantises and not is_floating(packed_dtype(self.context))
        return quantised and bool(self.context.stack.traits.held(quantised=True).wide)

    def reduced_whole(self, unit: Unit) -> int:
        """Bytes of what a unit's reduce-scatter takes in."""
        return self._reduced_whole[unit.name]

    @cached_property
    def _reduced_whole(self) -> dict[str, int]:
        shards = self.shards
        return self._by_unit(
            lambda unit: nbytes(sum(shards[i].unsharded_numel for i in self.reduced(unit)), self.reduce)
        )

    def reduced_shard(self, unit: Unit) -> int:
        """Bytes of what it puts out."""
        return self._reduced_shards[unit.name][0]

    def gradient_shard(self, unit: Unit) -> int:
        """The same in the type in which shards are stepped."""
        return self._reduced_shards[unit.name][1]

    @cached_property
    def _reduced_shards(self) -> dict[str, tuple[int, int]]:
        def shards(unit: Unit) -> tuple[int, int]:
            elements = sum(self.shards[i].shard_numel for i in self.reduced(unit))
            return nbytes(elements, self.reduce), nbytes(elements, self.master)

        return self._by_unit(shards)

    @cached_property
    def gradient_bytes(self) -> Sequence[int]:
        """Bytes of each parameter's whole gradient in the type in which it is reduced."""
        return self._by_parameter(lambda i: nbytes(self.trace.parameters[i].numel, self.reduce))

    def float8_shards(self, unit: Unit) -> list[fsdp_float8.CastShard]:
        """The unit's shards that are cast to float8 on their way."""
        return self._float8_shards[unit.name] if self.float8 else []

    @cached_property
    def _float8_shards(self) -> dict[str, list[fsdp_float8.CastShard]]:
        cast = fsdp_float8.CastShard.of
        return self._by_unit(
            lambda unit: [cast(self.shards[i].shard_numel) for i in unit.parameters if i in self.float8]
        )

    def host_shards(self, unit: Unit) -> list[fsdp_host.HostShard]:
        """The unit's parameters on their way from the host."""
        return self._host_shards[unit.name]

    @cached_property
    def _host_shards(self) -> dict[str, list[fsdp_host.HostShard]]:
        return self._by_unit(lambda unit: [self._host_shard(index) for index in unit.parameters])

    def _host_shard(self, index: int) -> fsdp_host.HostShard:
        gathered = self.gathered_dtype(index)
        return fsdp_host.HostShard(
            stored=self.stored_bytes[index],
            gathered=nbytes(self.shards[index].shard_numel, gathered),
            casts=self.stored_dtype(index) != gathered,
        )

    @cached_property
    def stored_bytes(self) -> Sequence[int]:
        """Bytes of each parameter's shard where it is kept."""
        return self._by_parameter(lambda i: nbytes(self.shards[i].shard_numel, self.stored_dtype(i)))

    def reduced(self, unit: Unit) -> list[int]:
        """Parameters of the unit that get a gradient."""
        return self.grouping.reduced[unit.name]

    def forward_span(self, unit: Unit) -> tuple[int, int]:
        """Where forward enters a unit that runs, and where it has left it."""
        enter, leave = unit_times(self.trace, unit.modules).forward
        assert enter is not None
        assert leave is not None
        return enter, leave

    def runs_backward(self, unit: Unit) -> bool:
        """Whether backward passes through it, as it does through the root: its hook is on what the whole model puts out
        (_fsdp_state.py: _register_pre_backward_hook)."""
        return unit.name == ROOT or unit_times(self.trace, unit.modules).backward[0] is not None

    def runs(self, unit: Unit) -> bool:
        """Whether forward passes through it."""
        return unit_times(self.trace, unit.modules).runs

    @cached_property
    def forward_order(self) -> tuple[Unit, ...]:
        """Units that run, in the order in which forward enters them."""
        return tuple(sorted((u for u in self.units if self.runs(u)), key=lambda unit: self.forward_span(unit)[0]))

    @cached_property
    def _first_fed(self) -> int | None:
        """Where forward enters the first unit that gets a gradient; None where none does."""
        return next((self.forward_span(unit)[0] for unit in self.forward_order if self.reduced(unit)), None)

    def fed(self, unit: Unit) -> bool:
        """Whether something that gets a gradient runs before a unit, so that its inputs need one."""
        first = self._first_fed
        return first is not None and first < self.forward_span(unit)[0]

    def backward_order(self) -> list[tuple[Unit, int, int]]:
        """Units with their first backward event and the event after which their gradients are reduced.

        A unit whose inputs need no gradient (the embedding's token ids, the root's, with a frozen embedding the first
        block's) is reduced at the very end.
        """
        start = marks(self.trace)[Mark.BACKWARD]
        end = marks(self.trace)[Mark.BACKWARD_END]
        embedding = self.trace.layout.input_embedding
        spans = []
        for unit in self.units:
            if not self.runs(unit):
                continue
            late = unit.name == ROOT or (embedding is not None and embedding in unit.modules) or not self.fed(unit)
            entered, left = unit_times(self.trace, unit.modules).backward
            enter = start if unit.name == ROOT else end if entered is None else entered
            leave = end if late or left is None else left
            spans.append((unit, enter, leave))
        return sorted(spans, key=lambda span: (span[1], span[2]))
