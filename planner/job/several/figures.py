"""What a job of several models comes to under one plan: peaks by phase and by model, read off the stream."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.job.several.composed import moved_of, staying_of
from gpu_plan.planner.job.several.evaluator import JobEvaluator
from gpu_plan.planner.job.several.staged import other_streams, own_rest, staged_rank
from gpu_plan.planner.job.several.times import PhaseTime, phase_times, together
from gpu_plan.planner.memory.profile import alive_at
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.together import owners, rest_of
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.options.several.given import Between, JobGiven, ModelGiven, PhaseGiven
from gpu_plan.planner.plan.recipe import ModelShare, PhasePeak, PlacedModel, SeveralFigures
from gpu_plan.planner.search.shown.sections import Details
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.trace.events import IntArray
from gpu_plan.planner.trace.variant import Regime


@dataclass(frozen=True, slots=True)
class JobTask(TrainingTask):
    """Trains the first model of a job; the others lie beside it."""

    job: JobGiven | None = None

    def details(self, judgement: Any, *, lost: bool, best: bool) -> Details:
        """As of training, and models and phases; no command: nobody's script runs all of them."""
        # A class with slots is made anew: `super()` without arguments would still mean the first one.
        found = replace(TrainingTask.details(self, judgement, lost=lost, best=best), command=None)
        if self.job is None or judgement.states_only or not isinstance(self.evaluator, JobEvaluator):
            return found
        # Of a run that ended for want of memory nothing is charged behind that.
        runs = judgement.simulated is not None and judgement.verdict != "no"
        blocks = self.evaluator.simulate_blocks(judgement)[1] if runs else None
        return replace(found, several=job_figures(judgement, self.job, self.evaluator, blocks))


def job_figures(
    judgement: StepJudgement, job: JobGiven, evaluator: JobEvaluator, blocks: IntArray | None = None
) -> SeveralFigures:
    """Of a candidate; `blocks`: what the allocator charges for each storage."""
    stream = judgement.stream
    roles = tuple(model.role for model in job.models)
    view = _View(stream, stream.sizes(judgement.replayed) if blocks is None else blocks, roles)
    # Stages peak in other phases: each phase is told of the rank that peaks highest in it.
    others = other_streams(evaluator, judgement)
    views = (view, *(_View(one, one.sizes(judgement.replayed), roles) for one in others))
    phases = tuple(
        max((_phase(each, job, phase) for each in views), key=lambda found: found.peak_bytes) for phase in job.phases
    )
    at_peak = view.shares(int(np.argmax(view.live)))
    models = tuple(
        _model(model, judgement, evaluator, at_peak[place].bytes, job.anchor) for place, model in enumerate(job.models)
    )
    worst = max(phases, key=lambda phase: phase.peak_bytes)
    times = phase_times(judgement, evaluator)
    whole = together(time.whole for time in times.values())
    return SeveralFigures(
        job=job.name,
        models=models,
        phases=tuple(_timed(phase, times[phase.name]) for phase in phases),
        worst_phase=worst.name,
        seconds=whole.expected,
        seconds_low=whole.low,
        seconds_high=whole.high,
        longest_phase=max(times, key=lambda name: times[name].whole.expected),
        seconds_basis=whole.basis,
    )


def _timed(phase: PhasePeak, time: PhaseTime) -> PhasePeak:
    whole = time.whole
    return replace(
        phase,
        seconds=whole.expected,
        seconds_low=whole.low,
        seconds_high=whole.high,
        moving_seconds=time.moving.expected,
        at_least=whole.at_least,
    )


class _View:
    """A stream, charged."""

    def __init__(self, stream: RankStream, sizes: IntArray, roles: tuple[str, ...]) -> None:
        self.stream, self._sizes, self._roles = stream, sizes, roles
        self.live = np.cumsum(stream.event_sign * sizes[stream.event_tensor])
        self._owners = owners(stream, roles)

    def shares(self, position: int) -> tuple[ModelShare, ...]:
        """What of each model stands behind an event."""
        alive = alive_at(self.stream, position)
        sums = np.bincount(self._owners, weights=self._sizes * alive, minlength=len(self._roles))
        return tuple(ModelShare(role=role, bytes=int(sums[place])) for place, role in enumerate(self._roles))

    def peak(self, inside: NDArray[np.bool_]) -> int:
        """Position of the highest event; the one before them where nothing happens or all is given back."""
        positions = np.flatnonzero(inside)
        highest = int(positions[np.argmax(self.live[positions])])
        before = int(positions[0]) - 1
        return before if before >= 0 and self.live[before] > self.live[highest] else highest


def _phase(view: _View, job: JobGiven, phase: PhaseGiven) -> PhasePeak:
    stream = view.stream
    named = [segment for segment, name in stream.names if name == phase.name]
    inside = np.isin(stream.event_segment, named)
    if phase is job.update:
        inside |= (stream.event_segment > 0) & (stream.event_segment <= stream.step_segments[-1])
    if not inside.any():
        # On devices of its own: what stands here is what stands between phases.
        inside = np.arange(len(view.live)) == len(view.live) - 1
    shares = view.shares(view.peak(inside))
    return PhasePeak(
        name=phase.name,
        does=str(phase.does),
        roles=phase.roles,
        repeats=phase.repeats,
        peak_bytes=sum(share.bytes for share in shares),
        by_model=shares,
    )


def _model(
    model: ModelGiven, judgement: StepJudgement, evaluator: JobEvaluator, at_peak: int, anchor: ModelGiven
) -> PlacedModel:
    composer, family, batch = evaluator.composer, judgement.family, judgement.batch
    if model.role not in composer.runners:
        return _engine(model, judgement, evaluator, at_peak)
    runner = composer.runners[model.role]
    own = family if model is anchor else runner.family(family)
    stage = staged_rank(judgement)
    if stage is not None and model is anchor:
        rest = own_rest(evaluator, family, batch, stage.rank)
    elif model is anchor:
        accumulation = min(batch.accumulation_steps, 2)
        trace = evaluator.provider.trace(evaluator.variant(family), batch.micro_batch)
        alone = family.strategy.rank(evaluator.context(family, accumulation, trace)).stream
        rest = rest_of(alone, batch.micro_batch)[1]
    else:
        rest = composer.resting(model.role, family, batch, stage)
    # Of what lies on the host all is told, of any other what of it stays on the device.
    rest = moved_of(rest, runner) if model.between is Between.HOST else staying_of(rest, model)
    spec = runner.evaluator.provider.spec()
    return PlacedModel(
        role=model.role,
        model=model.model,
        parameters=spec.num_parameters,
        trained=model.trains,
        dtype=_dtype(spec, runner.evaluator.variant(own).regime),
        spread=_spread(own, model),
        between=str(model.between),
        rest_bytes=rest.nbytes,
        at_peak_bytes=at_peak,
    )


def _dtype(spec: ModelSpec, regime: Regime) -> str:
    """Of most elements as they stand on the device: `uint8` of a base that is packed."""
    count: Counter[str] = Counter()
    for one in (parameter for parameter in spec.parameters if parameter.tied_to is None):
        count[regime.of(one)] += one.numel
    return count.most_common(1)[0][0]


def _spread(family: Family, model: ModelGiven) -> str:
    return family.title if model.trains or model.word("strategy") else "whole on each device"


def _engine(model: ModelGiven, judgement: StepJudgement, evaluator: JobEvaluator, at_peak: int) -> PlacedModel:
    engine, composer = evaluator.engine_of(judgement), evaluator.composer
    assert engine is not None
    asked = engine.given
    copied = composer.runners[composer.job.anchor.role].evaluator.provider.spec()
    return PlacedModel(
        role=model.role,
        model=model.model,
        parameters=copied.num_parameters,
        trained=False,
        dtype="auto",
        spread=f"{engine.server.title}, {asked.share:g} of each GPU"
        + (f", {asked.copies} copies" if asked.copies > 1 else "")
        + (", asleep between rollouts" if asked.sleeps else ""),
        between="server" if asked.mode == "server" else str(Between.DEVICE),
        rest_bytes=engine.held_bytes,
        at_peak_bytes=at_peak,
    )
