"""Candidates of a job's first model, judged with all others beside it."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.recipe.engine import Engine, asleep
from gpu_plan.planner.job.rollouts import roomier
from gpu_plan.planner.job.several.composed import Composer
from gpu_plan.planner.job.several.staged import StagedRank
from gpu_plan.planner.plan.document import Condition
from gpu_plan.planner.search.evaluator import J
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.piped.step import PipedRank
from gpu_plan.planner.strategy.base import RankPlan
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.workload.training import Workload


@dataclass(slots=True, kw_only=True)
class JobEvaluator(Evaluator):
    """Judges a candidate by the whole job."""

    composer: Composer
    engine: Engine | None = None
    sleeps_if_needed: bool = False
    """Whether it sleeps in plans whose update has no room beside it awake."""
    devices: Callable[[Cluster], tuple[Cluster, Engine | None]]
    """Of a whole cluster: those that train, and the engine on them or beside them. UsageError where none is held."""
    presumed: tuple[Condition, ...] = ()
    """What is presumed of the samples."""

    def of(self, workload: Workload, cluster: Cluster) -> Self:
        """The whole job in another shape, or on other devices."""
        trains, engine = (cluster, self.engine) if cluster == self.cluster else self._moved(cluster)
        found = Evaluator.of(self, workload, trains)
        return replace(found, composer=self.composer.on(workload, self.cluster, trains), engine=engine)

    def _moved(self, cluster: Cluster) -> tuple[Cluster, Engine | None]:
        try:
            return self.devices(cluster)
        except UsageError:
            # What it asks for where it is held now stands there too, and is more than there is.
            return cluster, self.engine

    def _judge(self, family: Family, batch: Batch, trace: StepTrace, states_only: bool = False) -> StepJudgement:
        # A class with slots is made anew: `super()` without arguments would still mean the first one.
        if states_only and self.sleeps_if_needed:
            return self._slept(lambda: Evaluator._judge(self, family, batch, trace, True))
        return self._either(lambda: Evaluator._judge(self, family, batch, trace, states_only))

    def _judge_pipeline(self, family: Family, batch: Batch) -> StepJudgement:
        return self._either(lambda: Evaluator._judge_pipeline(self, family, batch))

    def may_fit(self, judgement: J) -> bool:
        """An engine that sleeps leaves more room than was judged."""
        return True

    def simulate(self, judgement: J, *, pressed: bool = True) -> J:
        """As elsewhere; what its allocator leaves no room beside an engine awake is tried asleep too."""
        found: Any = Evaluator.simulate(self, judgement, pressed=pressed)
        if not isinstance(judgement, StepJudgement) or not self.sleeps_if_needed or judgement.sleeps:
            return cast("J", found)
        if judgement.states_only or found.device_verdict == "fits":
            return cast("J", found)
        slept: Any = self._slept(lambda: self._alone(judgement.family, judgement.batch))
        return cast("J", roomier(found, Evaluator.simulate(self, replace(slept, sleeps=True), pressed=pressed)))

    def _alone(self, family: Family, batch: Batch) -> StepJudgement:
        if family.pipeline is not None or family.layout is not None:
            return Evaluator._judge_pipeline(self, family, batch)
        trace = self.provider.trace(self.variant(family), batch.micro_batch)
        return Evaluator._judge(self, family, batch, trace)

    def _either(self, judge: Callable[[], StepJudgement]) -> StepJudgement:
        """With the engine awake, or where that leaves no room and nobody said, asleep."""
        awake = self._with_engine(judge())
        if not self.sleeps_if_needed or awake.device_verdict != "no":
            return awake
        return replace(self._slept(judge), sleeps=True)

    def _slept(self, judge: Callable[[], StepJudgement]) -> StepJudgement:
        """With the engine asleep."""
        awake, self.engine = self.engine, asleep(self.engine)
        try:
            return self._with_engine(judge())
        finally:
            self.engine = awake

    def engine_of(self, judgement: StepJudgement) -> Engine | None:
        """Of a candidate."""
        return asleep(self.engine) if judgement.sleeps else self.engine

    def _with_engine(self, found: StepJudgement) -> StepJudgement:
        terms = () if self.engine is None or not self.engine.held_bytes else (self.engine.term,)
        return replace(found, terms=(*found.terms, *terms), presumed=self.presumed)

    def beside_others(self, family: Family, batch: Batch, one: PipedRank) -> PipedRank:
        """The rank with its share of the job's other models, in every phase."""
        stage = StagedRank(family=family, rank=one.place.rank)
        return replace(one, plan=self._whole(family, batch, one.context.trace, one.plan, stage))

    def _plan(self, family: Family, batch: Batch, trace: StepTrace) -> RankPlan:
        plan = Evaluator._plan(self, family, batch, trace)
        others = tuple(self._whole(family, batch, trace, other) for other in plan.other_ranks)
        return replace(self._whole(family, batch, trace, plan), other_ranks=others)

    def _whole(
        self, family: Family, batch: Batch, trace: StepTrace, plan: RankPlan, stage: StagedRank | None = None
    ) -> RankPlan:
        """One rank's plan with all other models."""
        composer = self.composer
        host = composer.host_bytes(plan.stream, family, batch, stage) if trace.num_tensors else 0
        stream = composer.stream(plan.stream, family, batch, trace, self.engine, stage)
        return replace(plan, stream=stream, host_bytes=plan.host_bytes + host)


def judging(
    evaluator: Evaluator,
    composer: Composer,
    engine: Engine | None,
    devices: Callable[[Cluster], tuple[Cluster, Engine | None]],
    presumed: tuple[Condition, ...] = (),
    *,
    sleeps_if_needed: bool = False,
) -> JobEvaluator:
    """The evaluator of the first model alone, made the job's."""
    own = {one.name: getattr(evaluator, one.name) for one in fields(Evaluator)}
    return JobEvaluator(
        **own,
        composer=composer,
        engine=engine,
        sleeps_if_needed=sleeps_if_needed,
        devices=devices,
        presumed=presumed,
    )
