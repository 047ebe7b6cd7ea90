"""What one model of a job stands for between phases, and what it takes in each: read off its own rank's stream."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, cast

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.several.staged import Passes
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.together import Storages, Window, rest_of, second_iteration, second_pass, window_of
from gpu_plan.planner.options.several.given import Does, ModelGiven, PhaseGiven
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.speed.model import StepTime
from gpu_plan.planner.strategy.base import RankPlan
from gpu_plan.planner.strategy.known import unsharded
from gpu_plan.planner.strategy.registry import find_strategy
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.workload.training import Checkpointing, Workload

T = TypeVar("T")


class Generating(Protocol):
    """A model that generates by itself."""

    def __call__(self, phase: PhaseGiven, rows: int) -> Window:
        """What it takes for so many samples."""

    def times(self, phase: PhaseGiven, rows: int) -> tuple[StepTime, StepTime]:
        """Of the pass over the prompts, and of one token more of each."""

    def on(self, cluster: Cluster) -> "Generating":
        """The same on other devices."""


@dataclass(slots=True, kw_only=True)
class Runner:
    """One model that transformers, or a factory, runs."""

    given: ModelGiven
    evaluator: Evaluator
    generating: Generating | None = None
    passes: Passes | None = None
    """How Megatron's workers run it without gradients; None where each rank has a whole model."""
    _kept: dict[tuple[object, ...], object] = field(default_factory=dict)

    def on(self, workload: Workload, cluster: Cluster, generates_on: Cluster) -> "Runner":
        """The same model on other devices."""
        if cluster == self.evaluator.cluster and workload == self.evaluator.workload:
            return self
        generating = None if self.generating is None else self.generating.on(generates_on)
        evaluator = self.evaluator.of(workload, cluster)
        passes = (
            None
            if self.passes is None
            else Passes(evaluator=evaluator, trained=self.given.trains, values=self.passes.values)
        )
        return Runner(given=self.given, evaluator=evaluator, generating=generating, passes=passes)

    def family(self, searched: Family) -> Family:
        """How it is spread: as the document says; else a trained one as the model that is searched, a frozen one
        whole."""
        workload = self.evaluator.workload
        if self.passes is not None:
            return searched
        if not self.given.trains:
            name = workload.strategy or unsharded(1).name
            offload = Offload(workload.offload or Offload.NONE)
            return Family(strategy=find_strategy(name), offload=offload, checkpointing=Checkpointing.NONE)
        strategy = searched.strategy if workload.strategy is None else find_strategy(workload.strategy)
        as_searched = searched.offload if strategy is searched.strategy else Offload.NONE
        able = self.evaluator.provider.spec().can_checkpoint
        checkpointing = workload.checkpointing or (searched.checkpointing if able else Checkpointing.NONE)
        offload = Offload(workload.offload) if workload.offload is not None else as_searched
        return Family(strategy=strategy, offload=offload, checkpointing=checkpointing)

    def rest(self, searched: Family, batch: Batch) -> Storages:
        """What stands of it on its device while others compute."""
        family = self.family(searched)
        if self.given.trains:
            size = (batch.micro_batch, min(batch.accumulation_steps, 2))
            return self._once(
                ("rest", *_key(family), *size), lambda: rest_of(self._trained(family, batch).stream, size[0])[1]
            )
        return self._once(("rest", *_key(family)), lambda: rest_of(self._standing(family).stream, 1)[1])

    def host_bytes(self, searched: Family, batch: Batch) -> int:
        """RAM that its strategy takes for a rank."""
        family = self.family(searched)
        plan = self._trained(family, batch) if self.given.trains else self._standing(family)
        return plan.host_bytes

    def update(self, searched: Family, batch: Batch) -> Window:
        """An iteration in which it is trained."""
        family = self.family(searched)
        size = (batch.micro_batch, min(batch.accumulation_steps, 2))

        def made() -> Window:
            stream = self._trained(family, batch).stream
            return window_of(stream, batch.micro_batch, second_iteration(stream))

        return self._once(("update", *_key(family), *size), made)

    def forward(self, searched: Family, phase: PhaseGiven, micro_batch: int) -> Window:
        """A pass without gradients."""
        family = self.family(searched)

        def made() -> Window:
            stream = forward_stream(self.evaluator, family, phase, micro_batch, frozen=not self.given.trains)
            return window_of(stream, micro_batch, second_pass(stream))

        return self._once(("forward", *_key(family), phase.does, phase.seq_len, micro_batch), made)

    def trained(self, family: Family, batch: Batch) -> tuple[RankPlan, StepTrace]:
        """Its own run under a family, alone, and the step that it replays."""
        evaluator = self.evaluator
        return self._trained(family, batch), evaluator.provider.trace(evaluator.variant(family), batch.micro_batch)

    def _trained(self, family: Family, batch: Batch) -> RankPlan:
        evaluator, steps = self.evaluator, min(batch.accumulation_steps, 2)
        trace = evaluator.provider.trace(evaluator.variant(family), batch.micro_batch)
        key = ("trained", *_key(family), steps, trace.samples)
        return self._once(key, lambda: family.strategy.rank(evaluator.context(family, steps, trace)))

    def _standing(self, family: Family) -> RankPlan:
        """Of a frozen model: no step is needed to know what stands."""
        trace = frozen_trace(self.evaluator.provider.static_trace(self.evaluator.variant(family).regime))
        key = ("standing", *_key(family))
        return self._once(key, lambda: family.strategy.rank(self.evaluator.context(family, 1, trace)))

    def _once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        return cast("T", self._kept[key])


def forward_stream(
    evaluator: Evaluator, family: Family, phase: PhaseGiven, micro_batch: int, *, frozen: bool
) -> RankStream:
    """A rank's stream of passes without gradients."""
    return forward_plan(evaluator, family, phase, micro_batch, frozen=frozen)[0].stream


def forward_plan(
    evaluator: Evaluator, family: Family, phase: PhaseGiven, micro_batch: int, *, frozen: bool
) -> tuple[RankPlan, StepTrace]:
    """What a rank does in passes without gradients, and the pass that it replays."""
    variant = replace(
        evaluator.variant(family),
        seq_len=phase.seq_len,
        checkpointing=Checkpointing.NONE,
        checkpoint_every=1,
        checkpoints_on_host=False,
        compilation=None,
        evaluation="log-probabilities" if phase.does is Does.LOG_PROBABILITIES else "forward",
    )
    trace = evaluator.provider.trace(variant, micro_batch)
    return family.strategy.rank(evaluator.context(family, 1, frozen_trace(trace) if frozen else trace)), trace


def frozen_trace(trace: StepTrace) -> StepTrace:
    """The same model with nothing to train."""
    return replace(trace, parameters=[replace(parameter, trainable=False) for parameter in trace.parameters])


def _key(family: Family) -> tuple[object, ...]:
    return (family.strategy.name, str(family.offload), str(family.checkpointing))
