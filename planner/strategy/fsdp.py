"""FSDP2: parameters, gradients and optimizer state sharded, units gathered as they are needed.

Mirrors torch/distributed/fsdp/_fully_shard (torch 2.13): _fsdp_param_group.py (unshard, wait_for_unshard,
post_forward, pre_backward, post_backward), _fsdp_collectives.py (foreach_all_gather and its copy-out,
foreach_reduce), _fsdp_state.py (_root_post_backward_final_callback); and accelerate utils/fsdp_utils.py:
fsdp2_prepare_model (fp32 upcast of trainable parameters, one unit per block, embeddings and tail on their own,
no autocast around forward).
"""

from collections.abc import Sequence

from planner.dtypes import is_floating
from planner.memory.optimizer import BITSANDBYTES, SHAPED, LocalTensor, place_clipping, place_state, place_step
from planner.memory.stream import Handle, Pass, Point, StreamBuilder
from planner.speed.model import Collective
from planner.strategy import fsdp_float8, fsdp_host
from planner.strategy.base import (
    MASTER,
    Offload,
    RankContext,
    RankPlan,
    autocast_regime,
    nbytes,
    place_buffers,
    place_workspaces,
)
from planner.strategy.fsdp_accumulation import AccumulatedGradients, refuses_reduce
from planner.strategy.fsdp_units import ROOT, Unit, shard, wrap_units, wrapping_notes
from planner.strategy.module_times import ModuleTimes, module_times
from planner.strategy.single import optimizer_work
from planner.trace.events import Category, Mark
from planner.trace.variant import Regime
from planner.workload import Optimizer, Peft, Precision, Stack

Unsharded = tuple[Handle, ...]
"""A unit's gathered parameters, one storage each."""

ALL_GATHER_STREAM, REDUCE_SCATTER_STREAM = 1, 2
"""Side streams of FSDPCommContext: what is allocated on them comes from pools of their own."""


def refuses_optimizer(optimizer: Optimizer) -> str | None:
    """FSDP2's parameters are DTensors, which not every optimizer takes.

    bitsandbytes' kernels and transformers' Adafactor mix them with plain tensors of state, which torch refuses; for
    Muon torch redistributes matrices in ways that are not modelled.
    """
    if optimizer in BITSANDBYTES or optimizer is Optimizer.ADAFACTOR:
        return f"{optimizer} keeps plain tensors beside FSDP2's DTensors, which torch refuses to mix; use fsdp1"
    return f"{optimizer} over sharded matrices is not in this version" if optimizer in SHAPED else None


class FullyShardedDataParallel:
    """FSDP2 over all ranks, as accelerate sets it up."""

    name = "fsdp"
    title = "FSDP2"
    zero_stage: int | None = None
    offloads: tuple[Offload, ...] = (Offload.NONE, Offload.ALL)

    def regime(self, precision: Precision, stack: Stack, peft: Peft = Peft.NONE) -> Regime:
        """accelerate's mixed precision gathers all parameters in the 16-bit type; without it dtypes stay."""
        if precision is Precision.FP8_MIXED:
            return Regime(weights=precision.compute_dtype, float8="gathered")
        if precision.is_mixed:
            return Regime(weights=precision.compute_dtype)
        return autocast_regime(precision, stack, peft)

    def refuses(self, context: RankContext) -> str | None:
        if context.world_size == 1:
            return "there is only one GPU"
        if context.offload is Offload.ALL and context.peft is Peft.QLORA:
            return "QLoRA with its parameters on the host is not built yet"
        if context.offload is Offload.ALL and context.precision is Precision.FP8_MIXED:
            return "float8 training with its parameters on the host is not in this version"
        gradients = self.regime(context.precision, context.stack, context.peft).trained
        return refuses_reduce(gradients, context) or refuses_optimizer(context.optimizer)

    def rank(self, context: RankContext) -> RankPlan:
        return sharded_rank(context)


def sharded_rank(context: RankContext) -> RankPlan:
    """One rank's plan, with as many replicas of the sharded whole as the context says."""
    return _Layout(context).plan()


class _Layout:
    """Lays out one rank's stream."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        trace = context.trace
        self._trace = trace
        self._regime = FullyShardedDataParallel().regime(context.precision, context.stack, context.peft)
        self._master = MASTER if context.precision.is_mixed else self._regime.trained
        self._reduce = context.setting("dtype.reduce", self._regime.trained)
        reshard = context.setting("fsdp.reshard_after_forward", "true") == "true"
        self._builder = StreamBuilder(trace, context.accumulation_steps)
        self._float8 = fsdp_float8.gathered(context)
        self._units = wrap_units(trace, reshard)
        self._shards = [shard(parameter, context.shard_ranks) for parameter in trace.parameters]
        self._times: ModuleTimes = module_times(trace)
        self._on_host = context.offload is Offload.ALL
        self._gradient_shards: list[Handle] = []
        self._accumulated = AccumulatedGradients(self._builder, self._reduce, self._regime.trained)
        self._in_all_reduce: list[Handle] = []
        """What HSDP's groups hold of a backward pass (_fsdp_param_group.py: AllReduceState)."""

    # -- sizes --------------------------------------------------------------------------------------------

    def _gathered(self, unit: Unit) -> int:
        """Bytes of the flat all-gather output."""
        return sum(nbytes(self._shards[i].unsharded_numel, self._gathered_dtype(i)) for i in unit.parameters)

    def _gathered_dtype(self, index: int) -> str:
        """MixedPrecisionPolicy.param_dtype, the parameter's own, or float8 where torchao's weights are gathered so."""
        parameter = self._trace.parameters[index]
        if index in self._float8:
            return fsdp_float8.DTYPE
        return self._regime.dtype_of(parameter.dtype, trainable=parameter.trainable)

    def _stored_dtype(self, index: int) -> str:
        """accelerate upcasts what is trained; the rest stays as it was loaded, in the type in which it computes.

        Under QLoRA all that is not quantised is fp32 (peft: prepare_model_for_kbit_training).
        """
        parameter = self._trace.parameters[index]
        upcast = parameter.trainable or (self._context.peft is Peft.QLORA and is_floating(parameter.dtype))
        return self._master if upcast else self._gathered_dtype(index)

    def _copy_out(self, at: Point, unit: Unit) -> Unsharded:
        """The unsharded parameters, one storage each, padding included."""
        sizes = [nbytes(self._shards[i].unsharded_numel, self._gathered_dtype(i)) for i in unit.parameters]
        return self._builder.alloc_each(at, sizes, Category.COMMUNICATION, "unsharded parameters", unit.name)

    def _shard_bytes(self, unit: Unit, dtype: str) -> int:
        return nbytes(sum(self._shards[i].shard_numel for i in self._reduced(unit)), dtype)

    def _reduced(self, unit: Unit) -> list[int]:
        """Parameters of the unit that get a gradient."""
        return [i for i in unit.parameters if self._steps(i)]

    def _steps(self, index: int) -> bool:
        """Whether a parameter gets a gradient, and so optimizer state."""
        return self._trace.parameters[index].trainable and self._builder.gradient_event(index) is not None

    # -- layout -------------------------------------------------------------------------------------------

    def plan(self) -> RankPlan:
        builder, context = self._builder, self._context
        for index, parameter in enumerate(self._trace.parameters):
            sharded = is_floating(parameter.dtype)
            if sharded and self._on_host:
                continue
            numel = self._shards[index].shard_numel if sharded else parameter.numel
            label = "weight shard" if sharded else "4-bit weight, whole on every rank"
            size = nbytes(numel, self._stored_dtype(index))
            builder.alloc(builder.at_load(), size, Category.PARAMETERS, label, parameter.name)
        place_buffers(builder)
        place_workspaces(builder, context.capability)
        unsharded: dict[str, Unsharded] = {}
        for in_pass in builder.passes:
            unsharded = self._forward(in_pass)
            self._backward(in_pass, unsharded)
            self._add_gradients(in_pass)
        local = [
            LocalTensor(name=p.name, numel=self._shards[i].shard_numel, dtype=self._master)
            for i, p in enumerate(self._trace.parameters)
            if self._steps(i)
        ]
        self._step(local)
        self._drop_gradient_shards()
        elements = sum(tensor.numel for tensor in local)
        work = fsdp_host.host_optimizer_work if self._on_host else optimizer_work
        return RankPlan(
            stream=builder.build(),
            collectives=self._collectives(),
            optimizer_work=work(context.optimizer, elements, nbytes(1, self._master), clipping=context.clipping),
            host_bytes=self._host_bytes(local),
            notes=(*wrapping_notes(self._trace), *([fsdp_host.NOTE] if self._on_host else [])),
        )

    def _step(self, local: list[LocalTensor]) -> None:
        """The optimizer's part, which leaves the device alone when it runs on the host."""
        builder, context = self._builder, self._context
        for iteration in range(0 if self._on_host else len(builder.steps)):
            if context.clipping:
                place_clipping(builder, iteration, local)
            if iteration == 0:
                place_state(builder, context.optimizer, local)
            place_step(builder, iteration, context.optimizer, local)

    def _host_bytes(self, local: list[LocalTensor]) -> int:
        if not self._on_host:
            return 0
        weights = [self._stored_bytes(index) for unit in self._units for index in unit.parameters]
        return fsdp_host.host_bytes(weights, local, self._context.optimizer)

    def _stored_bytes(self, index: int) -> int:
        """Bytes of a parameter's shard where it is kept."""
        return nbytes(self._shards[index].shard_numel, self._stored_dtype(index))

    def _forward(self, in_pass: Pass) -> dict[str, Unsharded]:
        """Gathers units as forward enters them; returns those that stay gathered for backward."""
        builder = self._builder
        kept: dict[str, Unsharded] = {}
        before: Handle | None = None
        for unit in self._forward_order():
            enter, leave = self._forward_span(unit)
            at = builder.before(in_pass, enter)
            gathered = self._all_gather(in_pass, enter, unit)
            out = self._copy_out(at, unit)
            if before is not None:
                # A local of wait_for_unshard keeps the last all-gather's output until it returns.
                builder.free(at, before)
            before = gathered
            if unit.reshard_after_forward:
                builder.free_each(builder.after(in_pass, leave), out)
            else:
                kept[unit.name] = out
        if before is not None:
            builder.free(builder.at_mark(in_pass, Mark.OUTPUTS_BOUND), before)
        return kept

    def _all_gather(self, in_pass: Pass, event: int, unit: Unit) -> Handle:
        """foreach_all_gather: a low-precision copy of the shards that are not so stored, and the flat output."""
        builder = self._builder
        at = builder.before(in_pass, event)
        copied_in = self._copy_in(at, unit)
        handle = builder.alloc(
            at,
            self._gathered(unit),
            Category.COMMUNICATION,
            "all-gather output",
            unit.name,
            cuda_stream=ALL_GATHER_STREAM,
        )
        builder.free_each(at, copied_in)
        return handle

    def _copy_in(self, at: Point, unit: Unit) -> Sequence[Handle]:
        """_get_param_all_gather_inputs: nothing where shards are stored on the device as they are gathered."""
        if self._on_host:
            shards = [self._host_shard(index) for index in unit.parameters]
            return fsdp_host.copy_in(self._builder, at, shards, unit.name, ALL_GATHER_STREAM)
        cast = [self._shards[i].shard_numel for i in unit.parameters if i in self._float8]
        made = fsdp_float8.cast_shards(self._builder, at, cast, unit.name, ALL_GATHER_STREAM)
        size = sum(
            nbytes(self._shards[i].shard_numel, self._gathered_dtype(i))
            for i in unit.parameters
            if i not in self._float8 and self._stored_dtype(i) != self._gathered_dtype(i)
        )
        if not size:
            return made
        category, label = Category.COMMUNICATION, "all-gather input"
        return [*made, self._builder.alloc(at, size, category, label, unit.name, cuda_stream=ALL_GATHER_STREAM)]

    def _host_shard(self, index: int) -> fsdp_host.HostShard:
        gathered = self._gathered_dtype(index)
        return fsdp_host.HostShard(
            stored=self._stored_bytes(index),
            gathered=nbytes(self._shards[index].shard_numel, gathered),
            casts=self._stored_dtype(index) != gathered,
        )

    def _backward(self, in_pass: Pass, unsharded: dict[str, Unsharded]) -> None:
        """Gathers units before their backward, one ahead; reduces each unit's gradients after it."""
        builder = self._builder
        order = self._backward_order()
        prefetched: dict[str, Handle] = {}
        reduce_input: Handle | None = None
        events: list[tuple[int, int, Unit]] = []
        for unit, enter, leave in order:
            events.append((enter, 0, unit))
            events.append((leave, 1, unit))
        following = {unit.name: order[i + 1][0] for i, (unit, _, _) in enumerate(order[:-1])}
        events.sort(key=lambda item: (item[0], item[1]))
        for position, what, unit in events:
            if what == 0:
                self._gather_for_backward(in_pass, position, unit, unsharded, prefetched, following)
            else:
                reduce_input = self._post_backward(in_pass, position, unit, unsharded, reduce_input)
        if reduce_input is not None:
            builder.free(builder.at_end(in_pass), reduce_input)
        builder.free_each(builder.at_end(in_pass), self._in_all_reduce)
        self._in_all_reduce.clear()

    def _gather_for_backward(
        self,
        in_pass: Pass,
        position: int,
        unit: Unit,
        unsharded: dict[str, Unsharded],
        prefetched: dict[str, Handle],
        following: dict[str, Unit],
    ) -> None:
        """pre_backward: copy-out frees the all-gather output at once, then the next unit is prefetched.

        A unit without backward (a frozen embedding) is prefetched for nothing (_fsdp_state.py:
        _root_post_backward_final_callback waits for it and clears it).
        """
        builder = self._builder
        at = builder.before(in_pass, position)
        if not any(module in self._times.backward_enter for module in unit.modules):
            gathered = prefetched.pop(unit.name, None)
            if gathered is not None:
                builder.free(at, gathered)
            return
        if unit.name not in unsharded:
            gathered = prefetched.pop(unit.name, None) or self._all_gather(in_pass, position, unit)
            unsharded[unit.name] = self._copy_out(at, unit)
            builder.free(at, gathered)
        ahead = following.get(unit.name)
        if ahead is not None and ahead.name not in unsharded and ahead.name not in prefetched:
            prefetched[ahead.name] = self._all_gather(in_pass, position, ahead)

    def _post_backward(
        self, in_pass: Pass, position: int, unit: Unit, unsharded: dict[str, Unsharded], reduce_input: Handle | None
    ) -> Handle | None:
        """Reshards, then reduce-scatters: the input outlives this unit, the gradients do not."""
        builder = self._builder
        at = builder.after(in_pass, position)
        parameters = self._reduced(unit)
        self._accumulated.add(at, in_pass, parameters)
        handle = unsharded.pop(unit.name, None)
        if handle is not None:
            builder.free_each(at, handle)
        if not in_pass.last:
            # accelerate no_sync: set_requires_gradient_sync(False) keeps whole gradients until the last micro step.
            self._accumulated.take(at, in_pass, self._trace.parameters, parameters)
            return reduce_input
        if reduce_input is not None:
            builder.free(at, reduce_input)
        if not parameters:
            return None
        whole = nbytes(sum(self._shards[i].unsharded_numel for i in parameters), self._reduce)
        fresh = builder.alloc(at, whole, Category.COMMUNICATION, "reduce-scatter input", unit.name)
        self._free_gradients(in_pass, position, parameters[:-1])
        reduced = builder.alloc(
            at,
            self._shard_bytes(unit, self._reduce),
            Category.COMMUNICATION,
            "reduce-scatter output",
            unit.name,
            cuda_stream=REDUCE_SCATTER_STREAM,
        )
        if self._master != self._reduce:
            cast = builder.alloc(
                at,
                self._shard_bytes(unit, self._master),
                Category.GRADIENTS,
                "gradient shard",
                unit.name,
                cuda_stream=REDUCE_SCATTER_STREAM,
            )
            if self._context.replicate == 1:
                builder.free(at, reduced)
            else:
                self._in_all_reduce.append(reduced)
            reduced = cast
        if not self._on_host:
            self._gradient_shards.append(reduced)
        elif self._context.replicate > 1 and self._master == self._reduce:
            self._in_all_reduce.append(reduced)
        else:
            builder.free(at, reduced)
        # A loop variable of foreach_reduce keeps the last gradient until it returns.
        self._free_gradients(in_pass, position, parameters[-1:])
        return fresh

    def _add_gradients(self, in_pass: Pass) -> None:
        """Later micro steps' gradients are added in place to the first's, which stand whole until they are reduced."""
        if in_pass.micro_step == 0 or self._accumulated.casts:
            return
        for index, parameter in enumerate(self._trace.parameters):
            event = self._builder.gradient_event(index)
            if event is not None and parameter.trainable:
                self._builder.free_gradient(self._builder.after(in_pass, event), in_pass, index)

    def _free_gradients(self, in_pass: Pass, position: int, parameters: list[int]) -> None:
        """The copy-in done, whole gradients go."""
        at = self._builder.after(in_pass, position)
        holder = next(p for p in self._builder.passes if p.iteration == in_pass.iteration)
        for index in parameters:
            if not self._accumulated.drop(at, index):
                self._builder.free_gradient(at, holder, index)

    def _drop_gradient_shards(self) -> None:
        """zero_grad drops the shards at the end of each iteration."""
        builder = self._builder
        per_iteration = len(self._gradient_shards) // len(builder.steps)
        for iteration in range(len(builder.steps)):
            start = iteration * per_iteration
            for handle in self._gradient_shards[start : start + per_iteration]:
                builder.free(builder.at_step(iteration), handle)

    # -- order --------------------------------------------------------------------------------------------

    def _forward_span(self, unit: Unit) -> tuple[int, int]:
        enters = [self._times.enter[m] for m in unit.modules if m in self._times.enter]
        leaves = [self._times.exit[m] for m in unit.modules if m in self._times.exit]
        return min(enters), max(leaves)

    def _runs(self, unit: Unit) -> bool:
        return any(m in self._times.enter and m in self._times.exit for m in unit.modules)

    def _forward_order(self) -> list[Unit]:
        return sorted((u for u in self._units if self._runs(u)), key=lambda unit: self._forward_span(unit)[0])

    def _fed(self, unit: Unit) -> bool:
        """Whether something that gets a gradient runs before a unit, so that its inputs need one."""
        start = self._forward_span(unit)[0]
        return any(self._reduced(other) and self._forward_span(other)[0] < start for other in self._forward_order())

    def _backward_order(self) -> list[tuple[Unit, int, int]]:
        """Units with their first backward event and the event after which their gradients are reduced.

        A unit whose inputs need no gradient (the embedding's token ids, the root's, with a frozen embedding the first
        block's) is reduced at the very end.
        """
        start = self._trace.mark_position(Mark.BACKWARD)
        end = self._trace.mark_position(Mark.BACKWARD_END)
        embedding = self._trace.layout.input_embedding
        spans = []
        for unit in self._units:
            if not self._runs(unit):
                continue
            late = unit.name == ROOT or (embedding is not None and embedding in unit.modules) or not self._fed(unit)
            enters = [self._times.backward_enter[m] for m in unit.modules if m in self._times.backward_enter]
            leaves = [self._times.backward_exit[m] for m in unit.modules if m in self._times.backward_exit]
            enter = start if unit.name == ROOT else min(enters, default=end)
            leave = end if late else max(leaves, default=end)
            spans.append((unit, enter, leave))
        return sorted(spans, key=lambda span: (span[1], span[2]))

    def _collectives(self) -> tuple[Collective, ...]:
        ranks = self._context.shard_ranks
        gathers = [
            Collective(
                kind="all_gather",
                bytes=self._gathered(unit),
                overlap=True,
                phase=phase,
                per="micro_step",
                ranks=ranks,
            )
            for unit in self._units
            for phase in (("forward", "backward") if unit.reshard_after_forward else ("forward",))
        ]
        scatters = [
            Collective(
                kind="reduce_scatter",
                bytes=nbytes(sum(self._shards[i].unsharded_numel for i in self._reduced(unit)), self._reduce),
                overlap=True,
                phase="backward",
                per="step",
                ranks=ranks,
            )
            for unit in self._units
        ]
        return (*gathers, *scatters, *self._replica_sums(), *self._transfers())

    def _transfers(self) -> list[Collective]:
        """Copies between host and device under offload."""
        if not self._on_host:
            return []
        weights = [(unit, sum(self._stored_bytes(index) for index in unit.parameters)) for unit in self._units]
        again = [size for unit, size in weights if unit.reshard_after_forward]
        gradients = [self._shard_bytes(unit, self._master) for unit in self._units if self._reduced(unit)]
        return fsdp_host.transfers([size for _, size in weights], again, gradients)

    def _replica_sums(self) -> list[Collective]:
        """HSDP sums the reduced shards over the replicas, unit by unit."""
        context = self._context
        if context.replicate == 1:
            return []
        return [
            Collective(
                kind="all_reduce",
                bytes=self._shard_bytes(unit, self._reduce),
                overlap=True,
                phase="backward",
                per="step",
                ranks=context.replicate,
                across_nodes=context.nodes > 1,
            )
            for unit in self._units
        ]
