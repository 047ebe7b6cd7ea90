"""How long a stage takes, what it waits for within it, and when a step of the whole pipeline ends."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gpu_plan.planner.pipeline.chrome import Ending, pipeline_trace
from gpu_plan.planner.pipeline.places import RECEIVED
from gpu_plan.planner.pipeline.schedules import Kind
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.pipeline.timeline import Timeline, run
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.piped.step import Judge, PipedRank, PipedStep
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.in_step import computation_of, without_weights
from gpu_plan.planner.speed.model import Axis, AxisTime, Collective, OptimizerWork, StepTime
from gpu_plan.planner.trace.events import StepTrace

_NOTHING = OptimizerWork(parameter_bytes_read_written=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """One micro batch through one stage."""

    computed: StepTime
    """What its `optimizer_seconds` hold are gradients that are added to buffers of their own."""
    weights: float = 0.0
    """Of its backward, the seconds of the second half, where it is split."""

    @property
    def forward(self) -> float:
        """With what the stage waits for the ranks that compute it together."""
        return self.computed.forward_seconds + self.computed.exposed_by_phase[0]

    @property
    def backward(self) -> float:
        """The same, with what is computed again."""
        computed = self.computed.backward_seconds + self.computed.recompute_seconds + self.computed.optimizer_seconds
        return computed + self.computed.exposed_by_phase[1]

    @property
    def all_waited(self) -> float:
        return self.computed.exposed_communication_seconds


def stage_time(
    evaluator: Judge,
    family: Family,
    batch: Batch,
    trace: StepTrace,
    calls: tuple[Collective, ...] = (),
    added: OptimizerWork = _NOTHING,
) -> StageTime:
    """Of a stage whose ranks send each other `calls` within it, and add gradients to buffers behind it."""
    once, alone = replace(batch, accumulation_steps=1), computation_of(trace)

    def seconds(part: StepTrace) -> StepTime:
        return evaluator.speed.step_time(evaluator.own_work(family, once, part, added, calls), evaluator.cluster)

    computed, first = seconds(alone), without_weights(alone)
    later = 0.0 if first is alone else computed.backward_seconds - seconds(first).backward_seconds
    return StageTime(computed=computed, weights=later)


def timeline_of(
    evaluator: Judge,
    batch: Batch,
    ranks: Sequence[PipedRank],
    cuts: Sequence[StageCut],
    traces: dict[StageCut, StepTrace],
    times: Sequence[StageTime],
    *,
    waits: bool = False,
) -> Timeline:
    """When every action of a step runs; what a stage waits for within it belongs to its own time. `waits`: a rank
    computes nothing while it sends."""
    seconds = {}
    for stage, time in enumerate(times):
        seconds[Kind.FORWARD, stage] = time.forward
        seconds[Kind.BACKWARD, stage] = time.backward
        seconds[Kind.INPUT, stage] = time.backward - time.weights
        seconds[Kind.WEIGHT, stage] = time.weights
    sent = max(
        (
            fixed + per * batch.micro_batch
            for cut in cuts
            for name, per, fixed in traces[cut].inputs
            if name == RECEIVED
        ),
        default=0,
    )
    return run([one.place.order for one in ranks], seconds, _sending(evaluator, len(ranks), sent), waits=waits)


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


def step_time(evaluator: Judge, family: Family, batch: Batch, step: PipedStep, times: Sequence[StageTime]) -> StepTime:
    """Until the last rank has stepped; the parts are those of the rank that computes longest."""
    cluster, steps = evaluator.cluster, batch.accumulation_steps
    once = replace(batch, accumulation_steps=1)  # the schedule repeats it
    works = [
        evaluator.own_work(
            family, once, computation_of(one.context.trace), one.plan.optimizer_work, one.plan.collectives
        )
        for one in step.ranks
    ]
    whole = [evaluator.speed.step_time(work, cluster) for work in works]
    after = max(time.exposed_communication_seconds + time.optimizer_seconds for time in whole)
    seconds = step.timeline.seconds + after
    busiest = max(range(len(whole)), key=lambda rank: step.timeline.busy(rank))
    slowest = whole[busiest]
    waited = steps * sum(times[span.stage].all_waited for span in step.ranks[busiest].place.spans)
    own = [times[span.stage].computed for span in step.ranks[busiest].place.spans]
    computed = [time.computed for time in times]
    flops = sum(time.model_flops for time in computed) * steps / len(step.ranks)
    peak = next((t.model_flops / t.step_seconds / t.mfu for t in computed if t.mfu), None)
    samples = batch.micro_batch * steps * (cluster.world_size // family.copy_ranks)
    tokens = step.ranks[0].context.trace.tokens_per_sample
    return replace(
        slowest,
        step_seconds=seconds,
        ends=lambda: _ends(seconds, [slowest, *own], steps),
        forward_seconds=slowest.forward_seconds * steps,
        backward_seconds=slowest.backward_seconds * steps,
        recompute_seconds=slowest.recompute_seconds * steps,
        optimizer_seconds=max(time.optimizer_seconds for time in whole),
        communication_seconds=slowest.communication_seconds + waited,
        exposed_communication_seconds=max(time.exposed_communication_seconds for time in whole) + waited,
        tokens_per_second_per_gpu=samples * tokens / cluster.world_size / seconds,
        samples_per_second=samples / seconds,
        model_flops=flops,
        mfu=None if peak is None else flops / seconds / peak,
        corners=None,
        scaling=None,
        degrees=partial(_degrees, slowest, own, steps),
        trace=partial(pipeline_trace, step.timeline, _endings(whole)),
    )


def _ends(seconds: float, times: Sequence[StepTime], steps: int) -> tuple[float, float]:
    """As far from what is expected as the rank's own parts are: its step around one micro batch, and `steps` more."""
    around, *inside = times
    expected = around.step_seconds + steps * sum(time.step_seconds for time in inside)
    low = around.low_seconds + steps * sum(time.low_seconds for time in inside)
    high = around.high_seconds + steps * sum(time.high_seconds for time in inside)
    return seconds * low / expected, seconds * high / expected


def _degrees(around: StepTime, inside: Sequence[StepTime], steps: int) -> tuple[AxisTime, ...]:
    """What a rank sends within its layers in every micro batch, and around them in a step."""
    found: dict[Axis, AxisTime] = {}
    for time in inside:
        for one in time.degrees() if time.degrees is not None else ():
            found[one.axis] = one.times(steps).plus(found.get(one.axis))
    for one in around.degrees() if around.degrees is not None else ():
        found[one.axis] = one.plus(found.get(one.axis))
    return tuple(found.values())
