"""Seconds of every phase of a job, each from the speed model of training steps, for one update of its first model.

A pass without gradients is the forward of a step with what its strategy gathers for it; transformers' generate is a
prefill and as many decodes as tokens but one; an engine reads weights and cache for every token, and none is faster; a
sync gathers the weights and writes them; what lies on the host comes and goes over the host's link. Phases and moves
follow each other.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from gpu_plan.planner.job.several.composed import moved_of
from gpu_plan.planner.job.several.evaluator import JobEvaluator
from gpu_plan.planner.job.several.runner import Runner, forward_plan
from gpu_plan.planner.job.several.staged import Passes, own_rest, staged_rank
from gpu_plan.planner.memory.together import Storages, rest_of
from gpu_plan.planner.options.several.given import Between, Does, ModelGiven, PhaseGiven
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.speed.collectives import call_seconds
from gpu_plan.planner.speed.model import Collective, CollectiveKind, OptimizerWork, StepTime
from gpu_plan.planner.speed.rates import memory_rate, worst_basis
from gpu_plan.planner.units import ceil_div

_NO_OPTIMIZER = OptimizerWork(parameter_bytes_read_written=0)
_SIXTEEN_BIT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """Seconds between bounds."""

    low: float = 0.0
    expected: float = 0.0
    high: float = 0.0
    basis: str = "measured"
    at_least: bool = False
    """Whether nothing says how much longer it takes."""

    def __add__(self, other: "Lasting") -> "Lasting":
        return Lasting(
            low=self.low + other.low,
            expected=self.expected + other.expected,
            high=self.high + other.high,
            basis=worst_basis((self.basis, other.basis)),
            at_least=self.at_least or other.at_least,
        )

    def times(self, factor: float) -> "Lasting":
        """The same, so many times."""
        return replace(self, low=self.low * factor, expected=self.expected * factor, high=self.high * factor)


def together(parts: Iterable[Lasting]) -> Lasting:
    """One after the other."""
    return sum(parts, Lasting())


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """One phase, for the samples of one update."""

    computing: Lasting
    moving: Lasting
    """What comes from the host and goes there, for it."""

    @property
    def whole(self) -> Lasting:
        """Both."""
        return self.computing + self.moving


def phase_times(judgement: StepJudgement, evaluator: JobEvaluator) -> dict[str, PhaseTime]:
    """Of a candidate, by the phases' names."""
    timed = _Timed(judgement, evaluator)
    job = evaluator.composer.job
    moved = dict.fromkeys((phase.name for phase in job.phases), Lasting())
    for name, nbytes, kind in timed.moves():
        moved[name] += timed.called(kind, nbytes)
    found = {}
    for phase in job.phases:
        share = 1 / phase.every
        found[phase.name] = PhaseTime(
            computing=together(timed.part(phase, role) for role in phase.roles).times(share),
            moving=moved[phase.name].times(share),
        )
    return found


class _Timed:
    """One candidate."""

    def __init__(self, judgement: StepJudgement, evaluator: JobEvaluator) -> None:
        self._judgement, self._evaluator = judgement, evaluator
        self._family, self._batch = judgement.family, judgement.batch
        self._composer = evaluator.composer
        self._job = self._composer.job

    @property
    def _samples(self) -> int:
        """That a rank trains on in one update."""
        return self._batch.micro_batch * self._batch.accumulation_steps

    def called(self, kind: CollectiveKind, nbytes: int, ranks: int | None = None) -> Lasting:
        """One transfer."""
        call = Collective(kind=kind, bytes=nbytes, phase="forward", per="step", overlap=False, ranks=ranks)
        rate = call_seconds(call, self._evaluator.cluster)
        return Lasting(low=rate.fast, expected=rate.expected, high=rate.slow, basis=rate.basis)

    def part(self, phase: PhaseGiven, role: str) -> Lasting:
        """One model's part of a phase, for as many samples as an update trains."""
        if role not in self._composer.runners:
            return self._rollout(phase) if phase.does is Does.GENERATE else self._sync()
        runner = self._composer.runners[role]
        searched = role == self._job.anchor.role
        if phase.does is Does.TRAIN:
            return _lasting(self._judgement.time) if searched else self._update(phase, runner)
        rows = phase.micro_batch or self._samples
        if phase.does is Does.GENERATE:
            return self._generate(phase, runner, rows, searched).times(self._samples / rows)
        rows = phase.micro_batch or self._batch.micro_batch
        family = self._family if searched else runner.family(self._family)
        if runner.passes is not None:
            return self._staged(phase, runner.passes, rows)
        return self._forward(phase, runner, family, rows).times(self._samples / rows)

    def _update(self, phase: PhaseGiven, runner: Runner) -> Lasting:
        """Another trained model's step."""
        own = phase is not self._job.update and phase.micro_batch is not None
        rows = phase.micro_batch if own and phase.micro_batch is not None else self._batch.micro_batch
        batch = Batch(micro_batch=rows, accumulation_steps=ceil_div(self._samples, rows))
        if runner.passes is not None:
            return _lasting(runner.passes.step(self._family, batch))
        family = runner.family(self._family)
        plan, trace = runner.trained(family, batch)
        work = runner.evaluator.work(family, batch, trace, plan)
        return _lasting(runner.evaluator.speed.step_time(work, runner.evaluator.cluster))

    def _forward(self, phase: PhaseGiven, runner: Runner, family: Family, rows: int) -> Lasting:
        """One pass without gradients, of whatever is trained as well: its strategy holds an optimizer's parts."""
        evaluator = runner.evaluator
        plan, trace = forward_plan(evaluator, family, phase, rows, frozen=not runner.given.trains)
        gathers = tuple(one for one in plan.collectives if one.phase == "forward")
        batch = Batch(micro_batch=rows, accumulation_steps=1)
        work = evaluator.own_work(family, batch, trace, _NO_OPTIMIZER, gathers)
        return _lasting(evaluator.speed.step_time(work, evaluator.cluster))

    def _staged(self, phase: PhaseGiven, passes: Passes, rows: int) -> Lasting:
        """All micro batches through the stages, forward only: the slowest stage decides, and the others fill up."""
        layout = self._family.layout
        assert layout is not None
        times = passes.times(layout, self._family, phase, rows)
        slowest = max(times, key=lambda one: one.forward)
        rounds = self._samples / rows + layout.pipeline - 1
        low, high = slowest.computed.ends()
        whole = slowest.computed.step_seconds
        seconds = slowest.forward * rounds
        return Lasting(
            low=seconds * low / whole, expected=seconds, high=seconds * high / whole, basis=slowest.computed.basis
        )

    def _generate(self, phase: PhaseGiven, runner: Runner, rows: int, searched: bool) -> Lasting:
        """transformers' generate; of sharded weights also what is gathered: once for all tokens, or for each."""
        assert runner.generating is not None
        prefill, decode = runner.generating.times(phase, rows)
        own = _lasting(prefill) + _lasting(decode).times(phase.completion_len - 1)
        traits = self._family.strategy.traits
        if not searched or not traits.shards_model:
            return own
        gathered = self.called("all_gather", self._weight_bytes)
        return own + gathered.times(1 if traits.uses_deepspeed else phase.completion_len)

    def _rollout(self, phase: PhaseGiven) -> Lasting:
        engine = self._evaluator.engine
        assert engine is not None
        ranks = self._evaluator.cluster.world_size
        # What is generated together reads the weights once; of it an update takes its samples.
        rows = phase.micro_batch or self._samples
        least = engine.rollout_seconds(rows * ranks) * self._samples / rows
        slow, expected, fast = memory_rate(self._evaluator.cluster.gpu).bounds
        return Lasting(
            low=least * expected / fast, expected=least, high=least * expected / slow, basis="assumed", at_least=True
        )

    def _sync(self) -> Lasting:
        """The weights gathered, then read and written where the engine lies, or sent to the first device of its own."""
        engine = self._evaluator.engine
        assert engine is not None
        sharded = self._family.strategy.traits.shards_model or self._family.layout is not None
        gathered = self.called("all_gather", self._weight_bytes) if sharded else Lasting()
        if not engine.beside:
            return gathered + self.called("broadcast", self._weight_bytes, 2)
        rate = memory_rate(self._evaluator.cluster.gpu)
        moved = 2 * self._weight_bytes / engine.tensor_parallel
        written = Lasting(
            low=moved / rate.fast, expected=moved / rate.expected, high=moved / rate.slow, basis=rate.basis
        )
        return gathered + written

    @property
    def _weight_bytes(self) -> int:
        """Of the searched model in 16 bits."""
        spec = self._composer.runners[self._job.anchor.role].evaluator.provider.spec()
        return _SIXTEEN_BIT * spec.num_parameters

    def moves(self) -> Iterator[tuple[str, int, CollectiveKind]]:
        """Phase, bytes and direction of everything that comes or goes in one round of the phases."""
        for model in self._job.models:
            if model.between is Between.DEVICE or model.role not in self._composer.runners:
                continue
            away = self._away(model)
            rows = away.computing()
            yield from _rounds(self._job.phases, model, away.part(rows).nbytes, _computes)
            yield from _rounds(self._job.phases, model, away.part(~rows).nbytes, _trains)

    def _away(self, model: ModelGiven) -> Storages:
        runner, stage = self._composer.runners[model.role], staged_rank(self._judgement)
        if model.role != self._job.anchor.role:
            return moved_of(self._composer.resting(model.role, self._family, self._batch, stage), runner)
        if stage is not None:
            return moved_of(own_rest(self._evaluator, self._family, self._batch, stage.rank), runner)
        trained, _ = runner.trained(self._family, self._batch)
        return moved_of(rest_of(trained.stream, self._batch.micro_batch)[1], runner)


def _rounds(
    phases: tuple[PhaseGiven, ...], model: ModelGiven, nbytes: int, needed: Callable[[PhaseGiven, ModelGiven], bool]
) -> Iterator[tuple[str, int, CollectiveKind]]:
    """It comes with the first of the phases that need it, and goes with the first that do not, round after round."""
    needs = [needed(phase, model) for phase in phases] if nbytes else []
    for place, phase in enumerate(phases if nbytes else ()):
        before = needs[place - 1]
        if needs[place] and not before:
            yield phase.name, nbytes, "host_to_device"
        # What is trained has changed; of a frozen model the host keeps its copy.
        if before and not needs[place] and model.trains:
            yield phase.name, nbytes, "device_to_host"


def _computes(phase: PhaseGiven, model: ModelGiven) -> bool:
    """Whether a phase needs a model's weights."""
    return model.role in phase.roles or (model.trains and phase.does is Does.SYNC)


def _trains(phase: PhaseGiven, model: ModelGiven) -> bool:
    """Whether it needs what weights are trained with."""
    return phase.does is Does.TRAIN and model.role in phase.roles


def _lasting(time: StepTime) -> Lasting:
    low, high = time.ends()
    return Lasting(low=low, expected=time.step_seconds, high=high, basis=time.basis)
