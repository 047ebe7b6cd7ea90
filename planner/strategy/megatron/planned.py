"""A rank of a job that the search judges."""

from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.megatron.settings import flag, gradient_bytes, number
from gpu_plan.planner.speed.model import Collective, OptimizerWork
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.megatron.notes import notes_of
from gpu_plan.planner.strategy.megatron.rank import SHARED, RankJob, stream_of
from gpu_plan.planner.strategy.megatron.states import StateRules, stored_bytes
from gpu_plan.planner.trace.events import StepTrace

_WIDE, _HALF = 4, 2
_TOUCHED = 28 + 6
"""Bytes an element of FusedAdam's step: gradient, main parameter and two moments read, the last three written in fp32;
and the main parameter read again and written in 16 bits."""
_CLEARED, _CHECKED, _SCALED = 1, 1, 2
"""Passes over a rank's own buffer of gradients, once a step: written to begin with (param_and_grad_buffer.py: reset),
read for their norm, which must be a number (check_grads; --check-for-nan-in-loss-and-grad is the default), and
multiplied by one over the data parallel ranks before they are summed (start_grad_sync: gradient_scaling_factor)."""
_CLIPPED = 4 + 8
"""Bytes an element that the rank steps: read for the norm of all, read and written by clipping (clip_grads.py:
get_grad_norm_ fp32, clip_grad_by_total_norm_fp32)."""
_MOMENTS = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1}


def rules_of(context: RankContext) -> StateRules:
    """How the job keeps its states."""
    assert context.part is not None
    layout, settings = context.part.layout, dict(context.settings)
    dense = context.world_size // (layout.tensor * layout.pipeline)
    experts = context.world_size // (layout.expert * layout.expert_tensor * layout.pipeline)
    aware = flag(settings, "precision_aware", False)
    moment = _MOMENTS[settings.get("megatron.moments_dtype", "float32")]
    return StateRules(
        data_parallel=dense,
        expert_data_parallel=max(1, experts),
        instances=number(settings, "optimizer_instances") or 1,
        distributed=flag(settings, "distributed_optimizer", True),
        overlap=flag(settings, "overlap", True),
        gradient_bytes=gradient_bytes(settings, context.precision.compute_dtype),
        widened=not aware,
        float8_stored=layout.float8_stored,
        # optimizer_config.py: store_param_remainders: beside 16-bit parameters only what they lack of fp32 is kept.
        main_bytes=_HALF if aware else _WIDE,
        moment_bytes=(moment, moment),
    )


def planned_rank(context: RankContext) -> RankPlan:
    """The rank at `context.pipeline`."""
    place, part = context.pipeline, context.part
    assert place is not None
    assert part is not None
    rules = rules_of(context)
    stream, stepped = stream_of(
        RankJob(
            trace=context.trace,
            place=place,
            rules=rules,
            capability=context.capability,
            masked_ids=part.layout.tensor > 1,
            deallocates=part.layout.deallocates,
            tied=part.model.tied,
            fused_gradients=part.layout.fused_gradients,
            grouped=part.model.experts is not None and part.layout.grouped,
        )
    )
    return RankPlan(
        stream=stream,
        collectives=_collectives(context.trace, rules, part.layout) + _shared_embedding(context, rules),
        optimizer_work=OptimizerWork(
            parameter_bytes_read_written=stepped * (_TOUCHED + (_CLIPPED if context.clipping else 0))
            + buffer_bytes(context.trace, rules),
            elements=stepped,
        ),
        notes=notes_of(context),
    )


def buffer_bytes(trace: StepTrace, rules: StateRules) -> int:
    """Bytes that pass through the device's memory once a step around a rank's whole buffer of gradients."""
    passes = _CLEARED + _CHECKED + (_SCALED if rules.data_parallel > 1 else 0)
    return sum(one.numel for one in trace.parameters) * rules.gradient_bytes * passes


def _collectives(trace: StepTrace, rules: StateRules, layout: Layout) -> tuple[Collective, ...]:
    """Gradients summed over data parallel ranks and parameters gathered again, once a step. Ranks that share a layer,
    or hold a group's experts, are numbered first (megatron/core/parallel_state.py: initialize_model_parallel)."""
    found = []
    groups = (
        (False, rules.data_parallel, layout.tensor),
        (True, rules.expert_data_parallel, layout.expert_tensor * layout.expert),
    )
    for experts, ranks, stride in groups:
        held = [one for one in trace.parameters if one.experts is experts]
        elements = sum(one.numel for one in held)
        if ranks == 1 or not elements:
            continue
        reduced = elements * rules.gradient_bytes
        if not rules.distributed:
            found.append(_once("all_reduce", reduced, ranks, rules.overlap, "backward", stride))
            continue
        own = ranks // rules.instances
        found.append(_once("reduce_scatter", reduced, own, rules.overlap, "backward", stride))
        if rules.instances > 1:
            # param_and_grad_buffer.py: start_grad_sync: what is shared out is summed between the copies.
            found.append(_once("all_reduce", reduced // own, rules.instances, rules.overlap, "backward", stride * own))
        found.append(
            _once(
                "all_gather",
                sum(one.numel * stored_bytes(one, rules) for one in held),
                own,
                rules.overlap,
                "forward",
                stride,
            )
        )
    return tuple(found)


def _shared_embedding(context: RankContext, rules: StateRules) -> tuple[Collective, ...]:
    """Gradients of a weight that the first stage has as embedding and the last one as head, summed once both are whole
    (megatron/core/distributed/finalize_model_grads.py: _allreduce_word_embedding_grads; DeepSpeed runtime/pipe/
    engine.py: _exec_reduce_tied_grads)."""
    place, part = context.pipeline, context.part
    assert place is not None
    assert part is not None
    if place.ranks == 1 or not part.model.tied or place.rank not in (0, place.ranks - 1):
        return ()
    shared = [one for one in context.trace.parameters if one.name.rpartition(".")[0].endswith(SHARED)]
    if not shared:
        return ()
    apart = context.world_size // place.ranks * (place.ranks - 1)
    nbytes = max(one.numel for one in shared) * rules.gradient_bytes
    return (_once("all_reduce", nbytes, 2, overlap=False, phase="step", stride=apart),)


def _once(kind: str, nbytes: int, ranks: int, overlap: bool, phase: str, stride: int) -> Collective:
    return Collective(
        kind=kind,  # type: ignore[arg-type]
        bytes=nbytes,
        phase=phase if overlap else "step",  # type: ignore[arg-type]
        per="step",
        overlap=overlap,
        ranks=ranks,
        stride=stride,
    )
