"""Judges a candidate that is cut into stages: every rank of one pipeline replayed, and the schedule run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.pipeline.chrome import Ending, pipeline_trace
from gpu_plan.planner.pipeline.places import RECEIVED, PipelineRank
from gpu_plan.planner.pipeline.schedules import Kind, Schedule, actions, in_flight, refused
from gpu_plan.planner.pipeline.stages import StageCut, balanced_cuts, even_cuts, layers_of, of_rank
from gpu_plan.planner.pipeline.timeline import Timeline, run
from gpu_plan.planner.plan.figures import AtPeak, StageFigures
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.model import Collective, OptimizerWork, SpeedModel, StepTime, StepWork
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.pipeline.cuts import Pipeline
from gpu_plan.planner.strategy.pipeline.rank import joined
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.provider import Provider
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedRank:
    """One rank of the pipeline."""

    place: PipelineRank
    context: RankContext
    plan: RankPlan

    @property
    def parameters(self) -> int:
        """Elements of its stages, whole."""
        return sum(parameter.numel for parameter in self.context.trace.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedStep:
    """One step of a pipeline, rank by rank."""

    ranks: tuple[PipedRank, ...]
    profiles: tuple[MemoryProfile, ...]
    timeline: Timeline

    @property
    def bubble(self) -> float:
        """Share of the ranks' time in which they wait for one another."""
        return self.timeline.bubble

    @property
    def bubble_seconds(self) -> float:
        """Of a step, for the average rank."""
        return self.timeline.bubble * self.timeline.seconds

    @property
    def worst(self) -> int:
        """The rank that peaks highest, the first of equal ones."""
        peaks = [profile.peak_allocated_bytes for profile in self.profiles]
        return peaks.index(max(peaks))

    def figures(self) -> tuple[StageFigures, ...]:
        """What the document says of every rank."""
        return tuple(
            StageFigures(
                rank=one.place.rank,
                layers=tuple((span.cut.first, span.cut.end) for span in one.place.spans),
                embedding=any(span.cut.is_first for span in one.place.spans),
                head=any(span.cut.is_last for span in one.place.spans),
                parameters=one.parameters,
                in_flight=in_flight(one.place.order),
                peak_allocated_bytes=profile.peak_allocated_bytes,
                phase_of_peak=str(profile.phase_of_peak),
                at_peak=AtPeak(**{str(category): size for category, size in profile.at_peak.items()}),
                busy_seconds=self.timeline.busy(one.place.rank),
            )
            for one, profile in zip(self.ranks, self.profiles, strict=True)
        )


class Judge(Protocol):
    """What judging a pipeline takes of the evaluator."""

    provider: Provider
    workload: Workload
    cluster: Cluster
    speed: SpeedModel
    config: Mapping[str, Any] | None
    kept_pipelines: dict[Any, tuple[PipedRank, ...]]

    def variant(self, family: Family) -> StepVariant:
        """The trace that a family replays, of the whole model."""
        ...

    def context(
        self, family: Family, accumulation_steps: int, trace: StepTrace, place: PipelineRank | None = None
    ) -> RankContext:
        """What the family's strategy is asked."""
        ...

    def own_work(
        self,
        family: Family,
        batch: Batch,
        trace: StepTrace,
        optimizer: OptimizerWork,
        collectives: tuple[Collective, ...],
    ) -> StepWork:
        """What a trace computes on the job's devices, with what stands around it."""
        ...


def runnable(pipeline: Pipeline, cuts: Sequence[Batch]) -> list[Batch]:
    """Batches that the schedule can run."""
    return [cut for cut in cuts if _refused(pipeline, cut) is None]


def refusal(evaluator: Judge, pipeline: Pipeline, cuts: Sequence[Batch]) -> str | None:
    """Why a model or a job cannot be piped so, in one line; None where it can."""
    workload, spec = evaluator.workload, evaluator.provider.spec()
    layers = layers_of(spec.parameters)
    if pipeline.stages > layers:
        return f"{spec.class_name} has {layers} layers, fewer than the {pipeline.stages} stages of {_asked(pipeline)}"
    if pipeline.virtual_stages > 1 and layers % pipeline.stages:
        return f"{_asked(pipeline)} are {pipeline.stages} stages, which do not divide {layers} layers"
    if pipeline.schedule is Schedule.ZERO_BUBBLE:
        return "the zero-bubble schedule is not in this version: its backward is split in two"
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


def judge_pipeline(evaluator: Judge, family: Family, batch: Batch) -> tuple[PipedStep, StepTime]:
    """Every rank of one pipeline, and the step's time."""
    pipeline = family.pipeline
    assert pipeline is not None
    layers = layers_of(evaluator.provider.spec().parameters)
    cuts = cuts_of(evaluator, family, batch, layers)
    traces = {cut: _trace(evaluator, family, cut, batch.micro_batch) for cut in cuts}
    key = (family, batch.accumulation_steps, tuple((cut, trace.samples) for cut, trace in traces.items()))
    if key not in evaluator.kept_pipelines:
        evaluator.kept_pipelines[key] = tuple(
            _rank(evaluator, family, batch, rank, cuts, traces) for rank in range(pipeline.degree)
        )
    ranks = evaluator.kept_pipelines[key]
    profiles = tuple(measure(one.plan.stream, batch.micro_batch) for one in ranks)
    times = [work_time(evaluator, family, batch, traces[cut]) for cut in cuts]
    timeline = timeline_of(evaluator, batch, ranks, cuts, traces, times)
    step = PipedStep(ranks=ranks, profiles=profiles, timeline=timeline)
    return step, step_time(evaluator, family, batch, step, times)


def bubble_warnings(plans: Iterable[tuple[Batch, PipedStep | None]]) -> tuple[str, ...]:
    """Of pipelines with fewer micro batches than stages: how much of the step is spent waiting."""
    found = {}
    for batch, step in plans:
        steps, degree = batch.accumulation_steps, 1 if step is None else len(step.ranks)
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
        time = work_time(evaluator, family, batch, _trace(evaluator, family, cut, batch.micro_batch))
        return time.forward_seconds + time.backward_seconds + time.recompute_seconds

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


def _trace(evaluator: Judge, family: Family, cut: StageCut, micro_batch: int) -> StepTrace:
    return evaluator.provider.trace(replace(evaluator.variant(family), stage=cut), micro_batch)


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


# -- time ------------------------------------------------------------------------------------------------------


def work_time(evaluator: Judge, family: Family, batch: Batch, trace: StepTrace) -> StepTime:
    """One micro batch through one stage, or through the whole model: nothing sent and nothing stepped."""
    nothing = OptimizerWork(parameter_bytes_read_written=0)
    work = evaluator.own_work(family, replace(batch, accumulation_steps=1), trace, nothing, ())
    return evaluator.speed.step_time(work, evaluator.cluster)


def timeline_of(
    evaluator: Judge,
    batch: Batch,
    ranks: Sequence[PipedRank],
    cuts: Sequence[StageCut],
    traces: dict[StageCut, StepTrace],
    times: Sequence[StepTime],
) -> Timeline:
    seconds = {}
    for stage, time in enumerate(times):
        seconds[Kind.FORWARD, stage] = time.forward_seconds
        seconds[Kind.BACKWARD, stage] = time.backward_seconds + time.recompute_seconds
    sent = max(
        (
            fixed + per * batch.micro_batch
            for cut in cuts
            for name, per, fixed in traces[cut].inputs
            if name == RECEIVED
        ),
        default=0,
    )
    return run([one.place.order for one in ranks], seconds, _sending(evaluator, len(ranks), sent))


def _sending(evaluator: Judge, degree: int, nbytes: int) -> float:
    """Seconds that a stage's output is under way. Data parallel ranks stand side by side, so that stages are as far
    apart as there are of them: across nodes as soon as one of these is full."""
    cluster = evaluator.cluster
    apart = cluster.nodes > 1 and cluster.world_size // degree >= cluster.gpus_per_node
    call = Collective(
        kind="broadcast", bytes=nbytes, phase="forward", per="micro_step", overlap=False, ranks=2, across_nodes=apart
    )
    return call_seconds(call, cluster).expected


def _endings(whole: Sequence[StepTime]) -> list[Ending]:
    """Behind the pipeline every rank waits for the slowest transfers, then steps as long as the slowest does."""
    waited = max(time.exposed_communication_seconds + time.optimizer_seconds for time in whole)
    return [Ending(waited - time.optimizer_seconds, time.optimizer_seconds) for time in whole]


def step_time(evaluator: Judge, family: Family, batch: Batch, step: PipedStep, times: Sequence[StepTime]) -> StepTime:
    """Until the last rank has stepped; the parts are those of the rank that computes longest."""
    cluster, steps = evaluator.cluster, batch.accumulation_steps
    once = replace(batch, accumulation_steps=1)  # the schedule repeats it
    works = [
        evaluator.own_work(family, once, one.context.trace, one.plan.optimizer_work, one.plan.collectives)
        for one in step.ranks
    ]
    whole = [evaluator.speed.step_time(work, cluster) for work in works]
    after = max(time.exposed_communication_seconds + time.optimizer_seconds for time in whole)
    seconds = step.timeline.seconds + after
    busiest = max(range(len(whole)), key=lambda rank: step.timeline.busy(rank))
    slowest = whole[busiest]
    flops = sum(time.model_flops for time in times) * steps / len(step.ranks)
    peak = next((t.model_flops / t.step_seconds / t.mfu for t in times if t.mfu), None)
    samples = batch.micro_batch * steps * (cluster.world_size // family.copy_ranks)
    tokens = step.ranks[0].context.trace.tokens_per_sample
    return replace(
        slowest,
        step_seconds=seconds,
        ends=lambda: (
            seconds * slowest.low_seconds / slowest.step_seconds,
            seconds * slowest.high_seconds / slowest.step_seconds,
        ),
        forward_seconds=slowest.forward_seconds * steps,
        backward_seconds=slowest.backward_seconds * steps,
        recompute_seconds=slowest.recompute_seconds * steps,
        optimizer_seconds=max(time.optimizer_seconds for time in whole),
        exposed_communication_seconds=max(time.exposed_communication_seconds for time in whole),
        tokens_per_second_per_gpu=samples * tokens / cluster.world_size / seconds,
        samples_per_second=samples / seconds,
        model_flops=flops,
        mfu=None if peak is None else flops / seconds / peak,
        corners=None,
        scaling=None,
        degrees=None,
        trace=partial(pipeline_trace, step.timeline, _endings(whole)),
    )
