"""What a job that rolls out does between its updates: rollout, log-probabilities, rewards, weight sync, by phase.

trl 1.16: trainer/grpo_trainer.py (_prepare_inputs, _generate_and_score_completions): generation takes a micro batch for
every step of the accumulation at once, log-probabilities a micro batch at a time, rewards all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, cast

from gpu_plan.planner.capture.provider import CapturedProvider
from gpu_plan.planner.capture.request import Passage
from gpu_plan.planner.capture.watch.names import DECODE, PREFILL, other_name
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.memory.phases import Between, Standing, gathered_bytes, with_phases
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.search.evaluator import J
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.strategy.base import RankPlan
from gpu_plan.planner.trace.events import Category, StepTrace
from gpu_plan.planner.trace.variant import StepVariant

Passages = Callable[[StepVariant, int], tuple[Passage, ...]]
_VERDICTS = ("fits", "tight", "no")


class Engine(Protocol):
    """What generates in a model's place, as far as training devices go; bytes of one."""

    @property
    def held_bytes(self) -> int:
        """What it keeps whatever runs there; 0 where it lies elsewhere."""

    @property
    def term(self) -> Term:
        """The same as it is shown beside the allocator."""

    def waking(self) -> tuple[Standing, ...]:
        """What it takes while its weights are written."""

    def generating(self) -> tuple[Standing, ...]:
        """What it takes beside what it keeps."""


MakeEngine = Callable[[int], Engine]
"""An engine for so many completions of one rank."""


@dataclass(slots=True, kw_only=True)
class RolloutEvaluator(Evaluator):
    """Judges candidates whose steps begin with a rollout: what stands meanwhile, and what an engine keeps."""

    passages: Passages
    roles: tuple[str, ...] = ()
    """What its models are called, where that is known."""
    engine: MakeEngine | None = None
    """The engine for so many completions of one rank; None where the model itself generates."""
    asleep: MakeEngine | None = None
    """The same that sleeps while the model trains, where that is open: tried of what has no room beside it awake."""
    _now: MakeEngine | None = None
    """The engine of the candidate that is being judged."""

    def _judge(self, family: Family, batch: Batch, trace: StepTrace, states_only: bool = False) -> StepJudgement:
        if states_only:
            return self._with(self.asleep or self.engine, family, batch, trace, states_only=True)
        awake = self._with(self.engine, family, batch, trace)
        if self.asleep is None or awake.device_verdict != "no":
            return awake
        return replace(self._with(self.asleep, family, batch, trace), sleeps=True)

    def may_fit(self, judgement: J) -> bool:
        """An engine that sleeps leaves more room than was judged."""
        return True

    def simulate(self, judgement: J, *, pressed: bool = True) -> J:
        """As elsewhere; what its allocator leaves no room beside an engine awake is tried asleep too."""
        # A class with slots is made anew: `super()` without arguments would still mean the first one.
        found: Any = Evaluator.simulate(self, judgement, pressed=pressed)
        if not isinstance(judgement, StepJudgement) or self.asleep is None or judgement.sleeps:
            return cast("J", found)
        if judgement.states_only or found.device_verdict == "fits":
            return cast("J", found)
        trace = self.provider.trace(self.variant(judgement.family), judgement.batch.micro_batch)
        slept: Any = replace(self._with(self.asleep, judgement.family, judgement.batch, trace), sleeps=True)
        return cast("J", roomier(found, Evaluator.simulate(self, slept, pressed=pressed)))

    def _with(
        self, make: MakeEngine | None, family: Family, batch: Batch, trace: StepTrace, states_only: bool = False
    ) -> StepJudgement:
        self._now = make
        found = Evaluator._judge(self, family, batch, trace, states_only)
        engine = self._made(make, batch)
        return found if engine is None or not engine.held_bytes else _beside(found, engine)

    def engine_of(self, judgement: StepJudgement) -> Engine | None:
        """Of a candidate."""
        return self._made(self.asleep if judgement.sleeps else self.engine, judgement.batch)

    @staticmethod
    def _made(make: MakeEngine | None, batch: Batch) -> Engine | None:
        return None if make is None else make(batch.micro_batch * batch.accumulation_steps)

    def _plan(self, family: Family, batch: Batch, trace: StepTrace) -> RankPlan:
        plan = Evaluator._plan(self, family, batch, trace)
        if not trace.num_tensors:
            return plan
        others = tuple(
            replace(other, stream=self._rolled(family, batch, trace, other.stream)) for other in plan.other_ranks
        )
        return replace(plan, stream=self._rolled(family, batch, trace, plan.stream), other_ranks=others)

    def _rolled(self, family: Family, batch: Batch, trace: StepTrace, stream: RankStream) -> RankStream:
        passages = {(one.model, one.name): one for one in self.passages(self.variant(family), batch.micro_batch)}
        shards = family.strategy.traits.shards_model
        gathered = gathered_bytes(stream, batch.micro_batch) if shards else 0
        whole = sum(p.numel for p in trace.parameters if not p.tied_to and not _of_other(p.name))
        element = _element(self.workload.precision.compute_dtype)
        job = _Between(
            rows=batch.micro_batch * batch.accumulation_steps,
            roles=self.roles,
            passages=passages,
            engine=self._made(self._now, batch),
            gathered=gathered,
            # trl's ds3_gather_for_generation, on unless it is switched off: the whole model, for generate and no other.
            gathered_whole=whole * element if shards and family.strategy.traits.uses_deepspeed else gathered,
            largest=max((p.numel for p in trace.parameters), default=0) * element if shards else 0,
        )
        return with_phases(stream, job.phases())


def roomier(awake: StepJudgement, slept: StepJudgement) -> StepJudgement:
    """Of one candidate with its engine awake and asleep, the one that fits sooner."""
    return min(awake, slept, key=lambda one: (_VERDICTS.index(one.device_verdict), one.used_bytes))


def with_rollouts(evaluator: Evaluator) -> Evaluator:
    """Of a script that generates, encodes or scores before its step: what that holds is counted."""
    provider = evaluator.provider
    if not isinstance(provider, CapturedProvider) or not provider.facts().passages:
        return evaluator
    return rolling(evaluator, provider.passages)


def rolling(
    evaluator: Evaluator,
    passages: Passages,
    roles: tuple[str, ...] = (),
    engine: MakeEngine | None = None,
    asleep: MakeEngine | None = None,
) -> RolloutEvaluator:
    """The evaluator of training, with what happens between updates."""
    own = {one.name: getattr(evaluator, one.name) for one in fields(Evaluator)}
    return RolloutEvaluator(**own, passages=passages, roles=roles, engine=engine, asleep=asleep)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Between:
    rows: int
    roles: tuple[str, ...]
    passages: dict[tuple[int, str], Passage]
    engine: Engine | None
    gathered: int
    gathered_whole: int
    largest: int

    def phases(self) -> Iterator[Between]:
        """Those of one iteration, in order."""
        rolls_out = self.engine is not None or any(name == PREFILL for _, name in self.passages)
        if self.engine is not None:
            gathered = _parameters(self.largest, "a parameter, gathered for vLLM")
            yield Between(phase=Phase.SYNC, standing=(*self.engine.waking(), gathered))
            yield Between(phase=Phase.ROLLOUT, standing=self.engine.generating())
        else:
            rollouts = [self.passages[0, name] for name in (PREFILL, DECODE) if (0, name) in self.passages]
            if rollouts:
                most = max(rollouts, key=lambda one: one.nbytes(self.rows))
                weights = _parameters(self.gathered_whole, "weights gathered for generate")
                yield Between(phase=Phase.ROLLOUT, standing=(weights, *_standing(most, self.rows)))
        for (model, name), one in self.passages.items():
            if name in (PREFILL, DECODE):
                continue
            rewards = model < len(self.roles) and self.roles[model] == "reward model"
            weights = _parameters(self.gathered, "weights gathered for a forward pass")
            scale = self.rows / one.rows if rewards and one.rows else 1.0
            phase = Phase.REWARDS if rewards else Phase.SCORING if rolls_out else Phase.INFERENCE
            yield Between(phase=phase, standing=(weights, *_standing(one, 0, scale)))


def _parameters(nbytes: int, label: str) -> Standing:
    return Standing(nbytes=nbytes, category=Category.COMMUNICATION, label=label)


def _standing(passage: Passage, rows: int, scale: float = 1.0) -> tuple[Standing, ...]:
    return tuple(
        Standing(
            nbytes=round((one.fixed + one.per_row * rows) * scale),
            category=Category(one.category),
            label=one.what,
            module=other_name(passage.model) if passage.model else "",
        )
        for one in passage.standing
    )


def _beside(found: StepJudgement, engine: Engine) -> StepJudgement:
    return replace(found, terms=(*found.terms, engine.term))


def _of_other(name: str) -> bool:
    return name.startswith("models.")


def _element(dtype: str) -> int:
    return 2 if dtype in ("bfloat16", "float16") else 4
