"""The least time and memory that stages of one copy could take, from the trace of the whole model.

A cut into stages takes traces of its own; what cannot come first is not traced. Of p ranks one computes at least 1/p of
a micro batch, and holds at least 1/p of the states.

The least time of m micro batches: rank r computes its own share t_r of each, and waits besides for one micro batch's
way there and back through the ranks before it: the step takes at least m·t_r + t_0 + ... + t_(r-1), for every r.
Where all of these are one length M, which is where the longest is least, M·(1 - (1 - 1/m)^p) is the whole micro batch.
Ranks with several stages may begin before that: of them only m/p of the whole is sure.
"""

from dataclasses import replace

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.pipeline.classes import CUT
from gpu_plan.planner.pipeline.stages import layers_of
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.least.rows import cut_of
from gpu_plan.planner.search.training.least.together import Least
from gpu_plan.planner.search.training.piped.times import stage_time
from gpu_plan.planner.strategy.known import unsharded
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.trace.shipped.needed import NotTraceableError

_WIDE = 4
"""Bytes of an element of a stage's gradients in mixed precision."""


def can_be_cut(evaluator: Evaluator, stages: int) -> bool:
    """Whether the model's class is one that is cut, known without building it, with a layer for each stage."""
    config = evaluator.config
    kind = config.get("model_type") if config is not None else None
    layers = layers_of(evaluator.provider.spec().parameters)
    return kind in CUT and stages <= layers


def least(evaluator: Evaluator, family: Family, cuts: list[Batch]) -> Least:
    """Over the cuts, smallest micro batch first."""
    pipeline = family.pipeline
    assert pipeline is not None
    alone = _alone(family)
    states = _held(evaluator, family, alone, evaluator.judge_states(alone, cuts[0]))
    states += min(_received(evaluator, family, batch) for batch in cuts)
    if states > evaluator.capacity_bytes:
        return Least(seconds=None, bytes=states)
    best: float | None = None
    for batch in cuts:
        try:
            trace = evaluator.provider.trace(evaluator.variant(alone), batch.micro_batch)
        except NotTraceableError:
            break  # larger than any shipped trace
        # Without what sharding issues around each unit: stages are gathered once a step.
        time = stage_time(evaluator, alone, batch, trace).computed
        whole = time.forward_seconds + time.backward_seconds + time.recompute_seconds
        samples = batch.micro_batch * batch.accumulation_steps * (evaluator.cluster.world_size // pipeline.degree)
        seconds = shortest(pipeline.degree, batch.accumulation_steps, pipeline.virtual_stages, whole) / samples
        best = seconds if best is None else min(best, seconds)
    return Least(seconds=best, bytes=states)


def states(evaluator: Evaluator, family: Family, batch: Batch) -> tuple[StepJudgement, int]:
    """The states of one copy alone, and bytes of a rank's at least, with what stands outside the allocator."""
    alone = _alone(family)
    judged = evaluator.judge_states(alone, batch)
    return judged, _held(evaluator, family, alone, judged) + _received(evaluator, family, batch)


def _alone(family: Family) -> Family:
    """The family that it comes to without stages."""
    name = family.strategy.traits.unpiped or unsharded(1).name
    return replace(family, strategy=STRATEGIES[name], pipeline=None)


def shortest(ranks: int, micro_batches: int, virtual: int, whole: float) -> float:
    """Seconds of a step at least; `whole` is one micro batch's way through all stages and back."""
    if virtual > 1:
        return max(whole, micro_batches * whole / ranks)
    return whole / float(1 - (1 - 1 / micro_batches) ** ranks)


def _held(evaluator: Evaluator, family: Family, alone: Family, judged: StepJudgement) -> int:
    """What is sharded over all ranks already, stages make no smaller but where rows are padded."""
    states, ranks = judged.profile.peak_allocated_bytes, family.copy_ranks
    if not alone.strategy.traits.shards_model:
        part = states // ranks
    else:
        if states > evaluator.capacity_bytes and (cut := cut_of(evaluator, alone, ranks)).is_less:
            states = min(states, cut.peak_bytes(judged.batch.micro_batch))
        part = max(states, _whole_in_stage(evaluator, family))
    return part + sum(term.low for term in judged.terms)


def _whole_in_stage(evaluator: Evaluator, family: Family) -> int:
    """What the average rank holds whole when its last backward is over, however its stage is sharded: gathered weights,
    and gradients that are reduced after it (strategy/pipeline/sharded.py, by torch's own stages)."""
    workload = evaluator.workload
    compute = element_bits(workload.precision.compute_dtype) // 8
    wide = workload.precision.is_mixed and "dtype.reduce" not in dict(workload.settings)
    trained = [one.numel for one in evaluator.provider.spec().parameters if one.trainable and one.tied_to is None]
    return sum(trained) * ((_WIDE if wide else compute) + compute) // family.copy_ranks


def _received(evaluator: Evaluator, family: Family, batch: Batch) -> int:
    """Buffers of the fullest rank for what it is sent: of every micro batch of a step, activations and gradients, all
    made before the first one runs (torch/distributed/pipelining/stage.py: _setup_forward_recv_info). In between both
    are sent; of two ranks' stages the first gets no activations, and the last no gradients."""
    pipeline = family.pipeline
    assert pipeline is not None
    size = element_bits(evaluator.variant(family).regime.weights) // 8
    each = (evaluator.provider.spec().hidden_size or 0) * evaluator.workload.seq_len * size
    buffers = 2 * pipeline.virtual_stages - (pipeline.degree == 2)
    return batch.micro_batch * batch.accumulation_steps * each * buffers
