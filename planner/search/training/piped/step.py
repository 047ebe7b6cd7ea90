"""What judging a pipeline takes, and what it gives: every rank, and when each computes."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.profile import MemoryProfile
from gpu_plan.planner.pipeline.places import PipelineRank
from gpu_plan.planner.pipeline.schedules import in_flight
from gpu_plan.planner.pipeline.timeline import Timeline
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.plan.figures import AtPeak, StageFigures
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.speed.model import Collective, OptimizerWork, SpeedModel, StepWork
from gpu_plan.planner.strategy.base import RankContext, RankPlan
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

    def told(self) -> "PipedFigures":
        """What is kept of it: a search looks at hundreds of pipelines, whose ranks' streams take gigabytes together."""
        return PipedFigures(stages=self.figures(), bubble=self.bubble, bubble_seconds=self.bubble_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedFigures:
    """What the document says of a pipeline."""

    stages: tuple[StageFigures, ...]
    bubble: float
    """Share of the ranks' time in which they wait for one another."""
    bubble_seconds: float
    """Of a step, for the average rank."""


Kept = dict[Any, tuple[PipedRank, ...]]
"""Ranks of the pipelines that were judged last, for every micro batch that their traces span."""
_MOST_KEPT = 2


def kept(known: Kept, key: object, make: Callable[[], tuple[PipedRank, ...]]) -> tuple[PipedRank, ...]:
    """A pipeline's ranks, made where they are not known; the oldest go."""
    if key not in known:
        while len(known) >= _MOST_KEPT:
            known.pop(next(iter(known)))
        known[key] = make()
    return known[key]


class Judge(Protocol):
    """What judging a pipeline takes of the evaluator."""

    provider: Provider
    workload: Workload
    cluster: Cluster
    speed: SpeedModel
    config: Mapping[str, Any] | None
    kept_pipelines: Kept

    def variant(self, family: Family) -> StepVariant:
        """The trace that a family replays, of the whole model."""
        ...

    def context(
        self, family: Family, accumulation_steps: int, trace: StepTrace, place: PipelineRank | None = None
    ) -> RankContext:
        """What the family's strategy is asked."""
        ...

    def beside_others(self, family: Family, batch: Batch, one: PipedRank) -> PipedRank:
        """A rank with the job's other models, where it has any."""
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
