"""Candidates of a job's first model, judged with all others beside it."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.recipe.engine import Engine
from gpu_plan.planner.job.several.composed import Composer
from gpu_plan.planner.job.several.staged import StagedRank
from gpu_plan.planner.plan.document import Condition
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
        return self._with_engine(Evaluator._judge(self, family, batch, trace, states_only))

    def _judge_pipeline(self, family: Family, batch: Batch) -> StepJudgement:
        return self._with_engine(Evaluator._judge_pipeline(self, family, batch))

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
) -> JobEvaluator:
    """The evaluator of the first model alone, made the job's."""
    own = {one.name: getattr(evaluator, one.name) for one in fields(Evaluator)}
    return JobEvaluator(**own, composer=composer, engine=engine, devices=devices, presumed=presumed)
