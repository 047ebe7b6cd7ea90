"""FSDP1, FULL_SHARD: every block's parameters as one flat parameter, gathered whole and freed again.

Mirrors torch/distributed/fsdp (torch 2.13): _flat_param.py (pre_unshard with its low-precision shard, unshard,
post_unshard, prepare_gradient_for_backward), _runtime_utils.py (_pre_forward_unshard, _post_forward_reshard,
_pre_backward_hook, _post_backward_hook, _reduce_grad, _accumulate_sharded_grad, _cast_grad_to_param_dtype,
_get_handle_to_prefetch), fully_sharded_data_parallel.py (_get_grad_norm); and accelerate 1.15 accelerator.py:
prepare_model (autocast around forward, outputs in fp32, flat parameters upcast to fp32), with the values that
`accelerate launch` passes: BACKWARD_PRE prefetch, no forward prefetch, use_orig_params.

A gathered block, and a gradient that is being reduced, serve again only once the streams recorded on them are done
(gpu_plan.planner.strategy.fsdp1.queues); how soon the host finds that out depends on how far it runs ahead.
"""

import numpy as np

from gpu_plan.planner.memory.optimizer.steps import LocalTensor, place_state, place_step
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass, Point
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.strategy.base import (
    MASTER,
    RankContext,
    RankPlan,
    autocast_regime,
    keep_gradients,
    nbytes,
    place_buffers,
    place_workspaces,
    refuses_float8,
)
from gpu_plan.planner.strategy.fsdp1 import host as flat_host
from gpu_plan.planner.strategy.fsdp1.adapters import adapter_notes, refuses_adapters
from gpu_plan.planner.strategy.fsdp1.collectives import REDUCING, gathering, sent_of
from gpu_plan.planner.strategy.fsdp1.flat import FlatUnit, first_shard, flat_shards, flat_units
from gpu_plan.planner.strategy.fsdp1.queues import (
    POST_BACKWARD_STREAM,
    PRE_UNSHARD_STREAM,
    UNSHARD_STREAM,
    Queues,
)
from gpu_plan.planner.strategy.fsdp1.runtime import ActionKind, unit_actions
from gpu_plan.planner.strategy.fsdp1.wrap import place_first_use, place_shards, place_wrapping
from gpu_plan.planner.strategy.fsdp2.host import host_optimizer_work
from gpu_plan.planner.strategy.module_times import module_times
from gpu_plan.planner.strategy.optimizer_step import full_embeddings, optimizer_work, with_paged_state
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import Category, Kind, Mark
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack

_NORM = 4


def flat_regime(precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
    """16-bit weights and buffers; accelerate puts autocast around forward as well.

    Adapters show peft their fp32 shards, for they are gathered in 16 bits only once their own forward begins.
    """
    if not precision.is_mixed:
        return autocast_regime(precision, stack, peft)
    compute = precision.compute_dtype
    wrapped = stack.traits.wraps_forward
    return Regime(
        weights=compute,
        autocast=compute if wrapped else None,
        outputs_to_fp32=wrapped,
        buffers_follow=True,
        adapters_seen=MASTER if peft.adapts else None,
    )


def refuses_flat(context: RankContext) -> str | None:
    """Why FSDP1 cannot run a configuration, or None."""
    if context.world_size == 1:
        return "there is only one GPU"
    if (problem := refuses_adapters(context, _units_of(context))) is not None:
        return problem
    if (problem := refuses_float8(context)) is not None:
        return problem
    if whose := context.optimizer.traits.matrices_only:
        return f"FSDP1 flattens parameters, and {whose} takes matrices only"
    return flat_host.refuses_offload(context) if context.offload is Offload.ALL else None


def flat_rank(
    context: RankContext, ignored: frozenset[int], *, broadcast_waits: bool, checkpointed_outside: bool = False
) -> RankPlan:
    """Rank 0's plan; `ignored`, `broadcast_waits` and `checkpointed_outside` as the strategy has them."""
    return _Layout(context, ignored, checkpointed_outside=checkpointed_outside).plan(broadcast_waits=broadcast_waits)


def _regime_of(context: RankContext) -> Regime:
    return flat_regime(context.precision, context.stack, context.peft)


def _units_of(context: RankContext, ignored: frozenset[int] = frozenset()) -> list[FlatUnit]:
    original = context.original_parameters
    return flat_units(context.trace, _regime_of(context), context.world_size, context.peft, ignored, original=original)


def _turns_limit(context: RankContext) -> bool:
    """Whether the limiter holds the host back in every schedule: where 16-bit layers have adapters between them.

    Measured (benchmarks/results/accuracy.md): 6 runs with adapters in a 16-bit base reserve what the limiter allows,
    within 0.03 GiB; 18 over a 4-bit base with their adapters left out of FSDP exceed it by as many gathered layers as
    1024 launches reach, within 0.2 GiB. Why it does not hold there is not known: in torch's code it does.
    """
    return context.peft.adapts and not context.peft.quantises


class _Layout:
    """Lays out rank 0's stream."""

    def __init__(self, context: RankContext, ignored: frozenset[int], *, checkpointed_outside: bool) -> None:
        self._ignored = [context.trace.parameters[index] for index in sorted(ignored)]
        self._context = context
        self._on_host = context.offload is Offload.ALL
        self._trace = context.trace
        self._master = MASTER if context.precision.is_mixed else _regime_of(context).trained
        self._builder = StreamBuilder(context.trace, context.accumulation_steps)
        self._units = _units_of(context, ignored)
        self._actions = unit_actions(context.trace, self._units, checkpointed_outside=checkpointed_outside)
        self._queues = Queues(limits=_turns_limit(context))
        self._kernels = np.concatenate([[0], np.cumsum(context.trace.kind == Kind.OPERATOR)])
        """Kernels launched before each event of a pass."""
        self._backward = context.trace.mark_position(Mark.BACKWARD)
        self._gathered: dict[str, Handle] = {}
        self._summed: dict[str, Handle] = {}
        """Unsharded flat gradients that no_sync keeps until the last micro step."""
        self._each = context.reduces_each
        self._shards: dict[int, list[Handle]] = {}
        """Gradient shards by iteration."""
        self._stale: dict[str, Handle] = {}
        """Shards from before they were upcast, which parameters still look into."""

    def plan(self, *, broadcast_waits: bool) -> RankPlan:
        builder, context = self._builder, self._context
        whole = [LocalTensor(name=p.name, numel=p.numel, dtype=MASTER) for p in self._ignored if p.trainable]
        for tensor in whole:
            builder.alloc(builder.at_load(), tensor.nbytes, Category.PARAMETERS, "weight", tensor.name)
        adapters = context.peft.adapts
        if self._trace.num_tensors:
            self._stale = place_wrapping(
                builder,
                self._units,
                self._master,
                adapters=adapters,
                broadcast_waits=broadcast_waits,
                leaves=self._on_host,
            )
            if not context.original_parameters:  # nothing looks into what was upcast
                builder.free_each(builder.at_load(), list(self._stale.values()))
                self._stale = {}
        elif not self._on_host:  # a trace without a step knows no blocks: all in one would be flattened at once
            place_shards(builder, self._units, self._master)
        place_buffers(builder)
        if self._trace.num_tensors:
            place_first_use(builder, self._units, self._master)
        place_workspaces(builder, context.capability)
        for in_pass in builder.passes:
            if self._trace.num_tensors:
                self._run(in_pass)
            else:
                self._leave_shards(in_pass)
        own = first_shard(self._trace, self._units, self._master)
        local = [*(own if context.original_parameters else flat_shards(self._units, self._master)), *whole]
        here = whole if self._on_host else local
        for iteration in range(len(builder.steps)):
            if context.clipping:
                self._clip(iteration, sum(tensor.numel > 0 for tensor in here))
            if iteration == 0:
                place_state(builder, context.optimizer, here, full_embeddings=full_embeddings(context))
            place_step(builder, iteration, context.optimizer, here)
            if not context.original_parameters:
                self._zero_gradients(iteration)
        if whole:
            keep_gradients(builder, list(self._trace.parameters))
        elements = sum(tensor.numel for tensor in local)
        work = host_optimizer_work if self._on_host else optimizer_work
        away = local[: len(local) - len(whole)]
        plan = RankPlan(
            stream=builder.build(self._queues.streams),
            collectives=sent_of(self._units, self._stored, self._reduced_in, each=self._each, on_host=self._on_host),
            optimizer_work=work(context.optimizer, elements, nbytes(1, self._master), clipping=context.clipping),
            host_bytes=flat_host.host_bytes(self._units, self._stored, away, context.optimizer) if self._on_host else 0,
            notes=self._notes(),
        )
        return with_paged_state(plan, context, local)

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if not self._context.optimizer.traits.takes_dtensors:
            notes.append(f"{self._context.optimizer} sees FSDP1's flat shards: vectors, cut at shard boundaries")
        if self._context.peft.adapts:
            notes += adapter_notes(self._context, _regime_of(self._context).weights)
        return (*notes, *([flat_host.NOTE] if self._on_host else []))

    # -- parameters ---------------------------------------------------------------------------------------

    def _unshard(self, at: Point, unit: FlatUnit) -> None:
        """What is gathered comes to be, and the padded flat parameter is gathered from it."""
        shard = self._gathered_from(at, unit)
        self._queues.limit_gathers(self._builder.moment(at))
        self._gathered[unit.module] = self._builder.alloc(
            at,
            self._flat_bytes(unit),
            Category.COMMUNICATION,
            "unsharded flat parameter",
            unit.module,
            cuda_stream=UNSHARD_STREAM,
        )
        self._queues.gather(self._flat_bytes(unit), gathering(len(unit.parameters)))
        self._free_gathered_from(at, shard)

    def _gathered_from(self, at: Point, unit: FlatUnit) -> Handle | None:
        """A 16-bit copy of the shard where that is of another type, or its copy from the host; None: the shard itself.

        _flat_param.py: _use_low_precision_shard makes room for the cast before what is cast comes from the host.
        """
        stored = self._stored(unit)
        if stored == unit.dtype and not self._on_host:
            return None
        builder, copies = self._builder, [("low-precision shard", unit.dtype)] if stored != unit.dtype else []
        if self._on_host:
            copies.append((flat_host.FROM_HOST, stored))
        made = [
            builder.alloc(
                at,
                nbytes(unit.shard_numel, dtype),
                Category.COMMUNICATION,
                label,
                unit.module,
                cuda_stream=PRE_UNSHARD_STREAM,
            )
            for label, dtype in copies
        ]
        builder.free_each(at, made[1:])
        self._queues.cast_shard()
        return made[0]

    def _free_gathered_from(self, at: Point, shard: Handle | None) -> None:
        if shard is not None:
            self._builder.free(at, shard, self._queues.free_cast_shard())

    def _ask_again(self, at: Point, unit: FlatUnit) -> None:
        """Of what is gathered already: the limiter takes its turn, and a shard on the host is cast once more
        (_flat_param.py: pre_unshard)."""
        again = self._on_host and self._stored(unit) != unit.dtype
        shard = self._gathered_from(at, unit) if again else None
        self._queues.limit_gathers(self._builder.moment(at))
        self._free_gathered_from(at, shard)

    def _stored(self, unit: FlatUnit) -> str:
        """dtype of a unit's shard: accelerate upcasts what is trained, the rest stays as it was loaded."""
        return self._master if unit.trainable else unit.dtype

    def _flat_bytes(self, unit: FlatUnit) -> int:
        return nbytes(unit.flat_numel, unit.dtype)

    def _run(self, in_pass: Pass) -> None:
        """One forward and backward pass.

        zero_grad clears the parameters' views alone: the flat parameter keeps the step's gradient shard until forward
        (_runtime_utils.py: _root_pre_forward, _reset_flat_param_grad_info_if_needed).
        """
        builder, queues = self._builder, self._queues
        queues.host_meets(builder.moment(builder.at_mark(in_pass, Mark.FORWARD)))
        queues.begin_forward()
        self._drop_shards(in_pass)
        before = self._kernels[-1] * builder.passes.index(in_pass)
        for action in self._actions:
            at = builder.before(in_pass, action.event)
            queues.launched(before + int(self._kernels[min(action.event, len(self._kernels) - 1)]), builder.moment(at))
            if action.event >= self._backward:
                queues.begin_backward()
            if action.act in (ActionKind.RESHARD, ActionKind.REDUCE) and action.unit.module in self._stale:
                builder.free(self._resharded(in_pass, at, action.unit), self._stale.pop(action.unit.module))
            if action.act is ActionKind.UNSHARD:
                self._unshard(at, action.unit)
            elif action.act is ActionKind.LIMIT:
                self._ask_again(at, action.unit)
            elif action.act is ActionKind.USE:
                queues.use_gathered()
            elif action.act is ActionKind.RESHARD:
                builder.free(at, self._gathered.pop(action.unit.module), queues.free_gathered())
            else:
                self._post_backward(in_pass, at, action.unit)
        queues.end_backward()
        if self._on_host and in_pass.last:
            self._take_shards_away(in_pass)
        if self._context.stack.traits.is_trainer:
            # transformers trainer.py: _inner_training_loop asks whether the loss is a number (logging_nan_inf_filter).
            queues.host_meets(builder.moment(builder.at_end(in_pass)))

    def _take_shards_away(self, in_pass: Pass) -> None:
        """Reduced gradients are on the host: _post_backward_final_callback waits for their copies, then
        _flat_param.py: prepare_gradient_for_optim lets go of what was copied."""
        at = self._builder.at_end(in_pass)
        self._queues.host_meets(self._builder.moment(at))
        self._builder.free_each(at, self._shards.pop(in_pass.iteration, []))

    def _zero_gradients(self, iteration: int) -> None:
        """zero_grad, where the optimizer has the flat parameters themselves."""
        builder = self._builder
        for handle in self._shards.pop(iteration, []):
            builder.free(builder.at_step(iteration), handle)

    def _drop_shards(self, in_pass: Pass) -> None:
        """Those of the step before, when forward begins."""
        if not self._context.original_parameters:
            return
        builder = self._builder
        for handle in self._shards.pop(in_pass.iteration - 1, []):
            builder.free(builder.at_mark(in_pass, Mark.FORWARD), handle)

    def _leave_shards(self, in_pass: Pass) -> None:
        """Of a trace without a step, whose units are not known: what every step holds, whatever its units."""
        builder = self._builder
        self._drop_shards(in_pass)
        if in_pass.last and not self._on_host:
            sizes = [nbytes(unit.shard_numel, self._stored(unit)) for unit in self._units if unit.trainable]
            at = builder.at_mark(in_pass, Mark.BACKWARD_END)
            self._shards[in_pass.iteration] = list(builder.alloc_each(at, sizes, Category.GRADIENTS, "gradient shard"))

    def _resharded(self, in_pass: Pass, at: Point, unit: FlatUnit) -> Point:
        """When parameters first become views into the shard; the root's do after forward, though it stays gathered
        (_runtime_utils.py: _post_forward_reshard)."""
        if not unit.is_root:
            return at
        left = module_times(self._trace).exit.get(unit.module)
        return at if left is None else self._builder.after(in_pass, left)

    # -- gradients ----------------------------------------------------------------------------------------

    def _post_backward(self, in_pass: Pass, at: Point, unit: FlatUnit) -> None:
        """The views' gradients become one, the parameter is freed, the gradient reduced and cast."""
        builder = self._builder
        flat = builder.alloc(at, self._flat_bytes(unit), Category.GRADIENTS, "unsharded flat gradient", unit.module)
        for index in unit.parameters:
            if builder.gradient_event(index) is not None:
                builder.free_gradient(at, in_pass, index)
        if unit.module in self._summed:
            # AccumulateGrad adds in place to what earlier micro steps left.
            builder.free(at, flat)
            flat = self._summed.pop(unit.module)
        gathered = self._gathered.pop(unit.module, None)
        if gathered is not None:
            builder.free(at, gathered, self._queues.free_gathered())
        if not in_pass.last and not self._each:
            self._summed[unit.module] = flat
            return
        self._reduce(in_pass, at, unit, flat)

    def _reduce(self, in_pass: Pass, at: Point, unit: FlatUnit, flat: Handle) -> None:
        """Reduce-scatter into a new shard, then its fp32 copy; no padding copy, since the flat one is padded.

        Where gradients are reduced in another type, the flat one is cast whole first, and stands until its copy is
        reduced (_post_backward_hook: autograd_computed_grad).
        """
        builder, reduce = self._builder, self._reduced_in(unit)
        low = nbytes(unit.shard_numel, reduce)
        stream = POST_BACKWARD_STREAM
        self._queues.reduce(nbytes(unit.flat_numel, reduce), REDUCING)
        cast = None
        if reduce != unit.dtype:
            size, label = nbytes(unit.flat_numel, reduce), "flat gradient, cast to be reduced"
            cast = builder.alloc(at, size, Category.GRADIENTS, label, unit.module, cuda_stream=stream)
        if self._master == reduce:
            shard = builder.alloc(at, low, Category.GRADIENTS, "gradient shard", unit.module, cuda_stream=stream)
        else:
            label = "reduce-scatter output"
            reduced = builder.alloc(at, low, Category.COMMUNICATION, label, unit.module, cuda_stream=stream)
            size = nbytes(unit.shard_numel, self._master)
            shard = builder.alloc(at, size, Category.GRADIENTS, "gradient shard", unit.module, cuda_stream=stream)
            builder.free(at, reduced)
        if cast is not None:
            builder.free(at, cast)
        builder.free(at, flat, self._queues.free_gradient())
        if self._each and in_pass.micro_step > 0:
            builder.free(at, shard)  # _runtime_utils.py: _accumulate_sharded_grad adds it to the one that is there
        else:
            self._shards.setdefault(in_pass.iteration, []).append(shard)

    def _reduced_in(self, unit: FlatUnit) -> str:
        """MixedPrecision.reduce_dtype; without mixed precision gradients are reduced as they are."""
        return self._context.setting("dtype.reduce", unit.dtype) if self._context.precision.is_mixed else unit.dtype

    def _clip(self, iteration: int, count: int) -> None:
        """_get_grad_norm: one fp32 norm per parameter with a part here, and their stack."""
        builder = self._builder
        if not count:
            return
        at = builder.at_step(iteration)
        norms = [builder.alloc(at, _NORM, Category.TEMPORARY, "clip_grad_norm_ norm") for _ in range(count)]
        stack = builder.alloc(at, _NORM * count, Category.TEMPORARY, "clip_grad_norm_ stacked norms")
        for handle in (*norms, stack):
            builder.free(builder.at_step(iteration), handle)
