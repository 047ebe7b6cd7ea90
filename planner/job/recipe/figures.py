"""What a job of several models comes to under one plan: by model and by phase, read off the replayed stream."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_plan.planner.capture.watch.names import other_name
from gpu_plan.planner.job.recipe.engine import VLLM, Engine
from gpu_plan.planner.job.rollouts import RolloutEvaluator
from gpu_plan.planner.memory.profile import standing
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.options.recipe.read import RecipeGiven
from gpu_plan.planner.plan.recipe import EngineFigures, JobModel, JobPhase, RecipeFigures
from gpu_plan.planner.search.judgement import Judgement
from gpu_plan.planner.search.shown.sections import Details
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.trace.events import IntArray

_MOST_MODELS = 8
_ENGINE = _MOST_MODELS
"""In the place of a model's number: vLLM's copy of the policy."""


@dataclass(frozen=True, slots=True)
class RecipeTask(TrainingTask):
    """A training task that tells its models apart."""

    given: RecipeGiven | None = None
    spec: ModelSpec | None = None

    def details(self, judgement: Any, *, lost: bool, best: bool) -> Details:
        """As of training, and the models; no command, since the data are made up."""
        from dataclasses import replace

        # A class with slots is made anew: `super()` without arguments would still mean the first one.
        found = TrainingTask.details(self, judgement, lost=lost, best=best)
        if self.given is None or self.spec is None or judgement.states_only:
            return found
        # Large blocks are charged whole: what the models have of the peak sums to it.
        blocks = self.evaluator.simulate_blocks(judgement)[1] if judgement.simulated is not None else None
        figures = recipe_figures(judgement, self.given, self.spec, self._engine(judgement), blocks)
        return replace(found, command=None, recipe=figures)

    def _engine(self, judgement: StepJudgement) -> EngineFigures | None:
        if not isinstance(self.evaluator, RolloutEvaluator):
            return None
        engine, batch = self.evaluator.engine_of(judgement), judgement.batch
        if not isinstance(engine, Engine):
            return None
        samples = batch.micro_batch * batch.accumulation_steps
        return engine.figures(samples * (self.evaluator.cluster.world_size if not engine.beside else engine.gpus))


def recipe_figures(
    judgement: Judgement,
    given: RecipeGiven,
    spec: ModelSpec,
    engine: EngineFigures | None = None,
    blocks: IntArray | None = None,
) -> RecipeFigures:
    """Models and phases of a candidate; `blocks`: what the allocator charges for each storage."""
    numbers = range(_MOST_MODELS)
    parts = [(number, [p for p in spec.parameters if _model_of(p.name) == number]) for number in numbers]
    parts = [(number, own) for number, own in parts if own]
    # The one that is trained comes first among the roles.
    parts.sort(key=lambda part: not any(p.trainable for p in part[1]))
    roles = {number: _role(given, place) for place, (number, _) in enumerate(parts)}
    at_peak: Counter[int] = Counter()
    for tensor in standing(judgement.stream, judgement.replayed, blocks=blocks):
        at_peak[_model_of(tensor.module)] += tensor.nbytes
    running = _running(judgement.stream, judgement.replayed)
    models = tuple(
        JobModel(
            role=roles[number],
            parameters=sum(p.numel for p in own if p.tied_to is None),
            trained=sum(p.numel for p in own if p.tied_to is None and p.trainable),
            dtype=_dtype(own),
            at_peak_bytes=at_peak[number],
            running_peak_bytes=running.get(number, 0),
        )
        for number, own in parts
    )
    if at_peak[_ENGINE]:
        copy = sum(p.numel for p in parts[0][1] if p.tied_to is None)
        models += (
            JobModel(
                role=VLLM,
                parameters=copy,
                trained=0,
                dtype="auto",
                at_peak_bytes=at_peak[_ENGINE],
                running_peak_bytes=judgement.profile.phase_peaks.get(Phase.ROLLOUT, 0),
            ),
        )
    phases = _phases(judgement, given, tuple(roles.values()))
    return RecipeFigures(
        recipe=given.recipe.name,
        trainer=given.recipe.trainer,
        reference=given.reference,
        prompt_len=given.prompt_len,
        completion_len=given.completion_len,
        models=models,
        phases=phases,
        worst_phase=max(phases, key=lambda phase: phase.peak_bytes).name,
        generations=given.generations,
        engine=engine,
    )


def _role(given: RecipeGiven, place: int) -> str:
    roles = given.roles
    return roles[place] if place < len(roles) else f"model {place + 1}"


def _phases(judgement: Judgement, given: RecipeGiven, roles: tuple[str, ...]) -> tuple[JobPhase, ...]:
    """Those of a step, and what happens once before the first."""
    found = []
    for phase, peak in judgement.profile.phase_peaks.items():
        once = str(phase) == "load"
        computing = _computing(phase, given, roles)
        found.append(
            JobPhase(name=str(phase), roles=computing, repeats="once" if once else "every step", peak_bytes=peak)
        )
    return tuple(found)


def _computing(phase: Phase, given: RecipeGiven, roles: tuple[str, ...]) -> tuple[str, ...]:
    """Which models a phase runs."""
    if phase is Phase.REWARDS:
        return tuple(role for role in roles if role == "reward model")
    if phase is Phase.SCORING:
        own = roles[:1] if given.engine is not None or given.reference == "adapters" else ()
        return (*own, *(role for role in roles if role == "reference"))
    if phase is Phase.INFERENCE:
        return roles[1:] or roles
    if phase is Phase.LOAD or (phase is Phase.FORWARD and not given.recipe.rolls_out):
        return roles
    return roles[:1]


def _running(stream: RankStream, micro_batch: int) -> dict[int, int]:
    """Most that stands while a tensor of each model is made."""
    sizes = stream.sizes(micro_batch)
    live = np.cumsum(stream.event_sign * sizes[stream.event_tensor])
    trace = stream.trace
    traced = trace.num_tensors * stream.num_passes
    owners = np.asarray([_model_of(name) for name in trace.modules], dtype=np.int64)
    made = (stream.event_sign > 0) & (stream.event_tensor < traced) & (stream.event_segment > 0)
    owner = np.full(len(live), -1, dtype=np.int64)
    owner[made] = owners[trace.tensor_module[stream.event_tensor[made] % trace.num_tensors]]
    return {int(number): int(live[owner == number].max()) for number in np.unique(owner) if number >= 0}


def _model_of(name: str) -> int:
    """Which of the captured models a module or parameter belongs to, by its name's first parts; 0 the first."""
    if name == VLLM:
        return _ENGINE
    for number in range(1, _MOST_MODELS):
        if name == other_name(number) or name.startswith(f"{other_name(number)}."):
            return number
    return 0


def _dtype(parameters: list[ParameterSpec]) -> str:
    count: Counter[str] = Counter()
    for one in parameters:
        count[one.dtype] += one.numel
    return count.most_common(1)[0][0]
