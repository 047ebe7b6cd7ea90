"""Judges a candidate that is cut into stages: every rank of one pipeline replayed, and the schedule run."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.pipeline.schedules import Schedule, actions, refused
from gpu_plan.planner.pipeline.stages import StageCut, balanced_cuts, even_cuts, layers_of, of_rank
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.piped.step import Judge, PipedFigures, PipedRank, PipedStep, kept
from gpu_plan.planner.search.training.piped.times import StageTime, stage_time, step_time, timeline_of
from gpu_plan.planner.speed.in_step import collectives_of
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.strategy.pipeline.cuts import Pipeline
from gpu_plan.planner.strategy.pipeline.rank import joined
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.workload.training import Checkpointing


def runnable(pipeline: Pipeline, cuts: Sequence[Batch]) -> list[Batch]:
    """Batches that the schedule can run."""
    return [cut for cut in cuts if _refused(pipeline, cut) is None]


def refusal(evaluator: Judge, family: Family, cuts: Sequence[Batch]) -> str | None:
    """Why a model or a job cannot be piped so, in one line; None where it can."""
    pipeline = family.pipeline
    assert pipeline is not None
    workload, spec = evaluator.workload, evaluator.provider.spec()
    layers = layers_of(spec.parameters)
    if pipeline.stages > layers:
        return f"{spec.class_name} has {layers} layers, fewer than the {pipeline.stages} stages of {_asked(pipeline)}"
    if pipeline.virtual_stages > 1 and layers % pipeline.stages:
        return f"{_asked(pipeline)} are {pipeline.stages} stages, which do not divide {layers} layers"
    halved = refuses_halves(family)
    if halved is not None:
        return halved
    if workload.stack.traits.is_trainer and workload.stack.traits.project != "transformers":
        return f"--stack {workload.stack} runs no pipeline"
    if workload.fused or workload.loss != "installed":
        return "a fused loss, Liger's kernels and other losses than transformers' own are not in this version of stages"
    settings = dict(workload.settings)
    odd = next((key for key in settings if key.startswith(("eval.", "compile.", "data."))), None)
    if odd is not None:
        return f"--set {odd} in a pipeline is not in this version"
    every = int(settings.get("checkpoint.every", "1"))
    if every > 1 and pipeline.stages == layers:
        return (
            f"--set checkpoint.every={every} says nothing where each stage has one layer: the first of a stage is"
            " always checkpointed"
        )
    if not runnable(pipeline, cuts):
        return _refused(pipeline, max(cuts, key=lambda cut: cut.accumulation_steps))
    return None


def refuses_halves(family: Family) -> str | None:
    """Why backward cannot be split in two under a strategy, in one line; None where it can, or is not.

    torch/distributed/pipelining/_backward.py: stage_backward_weight asks autograd for the gradients themselves: nothing
    that waits for them to be accumulated is called, and what is checkpointed runs again for each group of weights.
    FSDP2 does not wait: stage.py: perform_reduce_grad calls its reductions itself, when the step's last half is over.
    """
    pipeline, traits = family.pipeline, family.strategy.traits
    if pipeline is None or pipeline.schedule is not Schedule.ZERO_BUBBLE:
        return None
    if traits.pipeline_parallel != "all" and not traits.stage:
        return (
            "zero-bubble splits backward in two, and DDP would never reduce gradients that it does not see accumulated:"
            " --strategy fsdp, one pipeline over all GPUs, or --schedule interleaved"
        )
    if family.checkpointing is not Checkpointing.NONE:
        return (
            "zero-bubble splits backward in two, and what is checkpointed would run again for each group of weights:"
            " --checkpointing none, or --schedule interleaved"
        )
    return None


def judge_pipeline(evaluator: Judge, family: Family, batch: Batch) -> tuple[PipedStep, StepTime]:
    """Every rank of one pipeline, and the step's time."""
    pipeline = family.pipeline
    assert pipeline is not None
    layers = layers_of(evaluator.provider.spec().parameters)
    cuts = cuts_of(evaluator, family, batch, layers)
    halves = pipeline.schedule is Schedule.ZERO_BUBBLE
    traces = {cut: _trace(evaluator, family, cut, batch.micro_batch, halves=halves) for cut in cuts}
    key = (family, batch.accumulation_steps, tuple((cut, trace.samples) for cut, trace in traces.items()))
    degree = pipeline.degree
    ranks = kept(
        evaluator.kept_pipelines,
        key,
        lambda: tuple(_rank(evaluator, family, batch, rank, cuts, traces) for rank in range(degree)),
    )
    profiles = tuple(measure(one.plan.stream, batch.micro_batch) for one in ranks)
    times = [_time(evaluator, family, batch, traces[cut]) for cut in cuts]
    timeline = timeline_of(evaluator, batch, ranks, cuts, traces, times)
    step = PipedStep(ranks=ranks, profiles=profiles, timeline=timeline)
    return step, step_time(evaluator, family, batch, step, times)


def _time(evaluator: Judge, family: Family, batch: Batch, trace: StepTrace) -> StageTime:
    """One micro batch through one stage, whose ranks wait for each other's parts of a layer."""
    ranks = family.tensor_parallel
    calls = collectives_of(trace, ranks, 1, batch.micro_batch) if ranks > 1 else ()
    return stage_time(evaluator, family, batch, trace, calls)


def bubble_warnings(plans: Iterable[tuple[Batch, PipedFigures | None]]) -> tuple[str, ...]:
    """Of pipelines with fewer micro batches than stages: how much of the step is spent waiting."""
    found = {}
    for batch, step in plans:
        steps, degree = batch.accumulation_steps, 1 if step is None else len(step.stages)
        if step is not None and steps < degree:
            batches = "batch does" if steps == 1 else "batches do"
            found[degree, steps] = (
                f"{steps} micro {batches} not fill {degree} stages: ranks wait {step.bubble:.0%} of the step"
                f" for one another; --grad-accum {4 * degree} or a larger --global-batch fills them"
            )
    return tuple(found.values())


def cuts_of(evaluator: Judge, family: Family, batch: Batch, layers: int) -> tuple[StageCut, ...]:
    """Layers of every stage. Balanced ones go by what the stages take when each has as many layers."""
    pipeline = family.pipeline
    assert pipeline is not None
    even = even_cuts(layers, pipeline.stages)
    if pipeline.split == "even":
        return even
    first, between, last = even[0], even[len(even) // 2] if len(even) > 2 else even[0], even[-1]

    def seconds(cut: StageCut) -> float:
        trace = _trace(evaluator, family, cut, batch.micro_batch)
        time = _time(evaluator, family, batch, trace)
        return time.forward + time.backward

    layer = seconds(between) / (between.end - between.first)
    extra = [max(0.0, seconds(cut) - layer * (cut.end - cut.first)) for cut in (first, last)]
    return balanced_cuts(layers, pipeline.stages, layer, *extra)


def is_repeated(evaluator: Judge, family: Family, batch: Batch) -> bool:
    """Whether balanced layers are the even ones, which are tried as well."""
    pipeline = family.pipeline
    if pipeline is None or pipeline.split == "even" or evaluator.workload.setting("pipeline.split", "") == "balanced":
        return False
    layers = layers_of(evaluator.provider.spec().parameters)
    return cuts_of(evaluator, family, batch, layers) == even_cuts(layers, pipeline.stages)


def _asked(pipeline: Pipeline) -> str:
    virtual = f" --vpp {pipeline.virtual_stages}" if pipeline.virtual_stages > 1 else ""
    return f"--pp {pipeline.degree}{virtual}"


def _refused(pipeline: Pipeline, cut: Batch) -> str | None:
    return refused(pipeline.schedule, pipeline.degree, pipeline.virtual_stages, cut.accumulation_steps)


def _trace(evaluator: Judge, family: Family, cut: StageCut, micro_batch: int, *, halves: bool = False) -> StepTrace:
    return evaluator.provider.trace(replace(evaluator.variant(family), stage=cut, halves=halves), micro_batch)


def _rank(
    evaluator: Judge,
    family: Family,
    batch: Batch,
    rank: int,
    cuts: Sequence[StageCut],
    traces: dict[StageCut, StepTrace],
) -> PipedRank:
    pipeline = family.pipeline
    assert pipeline is not None
    own = of_rank(rank, pipeline.degree, pipeline.virtual_stages)
    trace, spans = joined([(stage, cuts[stage], traces[cuts[stage]]) for stage in own])
    place = PipelineRank(
        rank=rank,
        ranks=pipeline.degree,
        schedule=pipeline.schedule,
        order=actions(pipeline.schedule, rank, pipeline.degree, pipeline.virtual_stages, batch.accumulation_steps),
        micro_batches=batch.accumulation_steps,
        spans=spans,
        keeps_sent=evaluator.cluster.gpu.is_cpu,
    )
    context = evaluator.context(family, batch.accumulation_steps, trace, place)
    return PipedRank(place=place, context=context, plan=family.strategy.rank(context))
