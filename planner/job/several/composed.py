"""All models of a job on one device: the run of the one that is searched, the others beside it, their phases behind."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.job.rollouts import Engine
from gpu_plan.planner.job.several.generated import cast_bytes
from gpu_plan.planner.job.several.runner import Runner, forward_stream
from gpu_plan.planner.job.several.staged import StagedRank, exported
from gpu_plan.planner.megatron.part import DUMMY
from gpu_plan.planner.memory.phases import Standing, gathered_bytes
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.memory.together import Storages, Together, Window, left_by, made, rest_of, second_pass, window_of
from gpu_plan.planner.options.several.given import Between, Does, Head, JobGiven, ModelGiven, PhaseGiven
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.trace.events import Category, IntArray, StepTrace
from gpu_plan.planner.workload.training import Workload

_HALF = 2
_KINDS = {
    Does.TRAIN: Phase.UPDATE,
    Does.FORWARD: Phase.INFERENCE,
    Does.LOG_PROBABILITIES: Phase.SCORING,
    Does.GENERATE: Phase.ROLLOUT,
    Does.SYNC: Phase.SYNC,
}


@dataclass(slots=True, kw_only=True)
class Composer:
    """Puts a job together under one candidate of its first model."""

    job: JobGiven
    runners: Mapping[str, Runner]
    """Of all models that no engine runs, the first one's too."""

    def on(self, workload: Workload, before: Cluster, cluster: Cluster) -> "Composer":
        """The same models on other devices; `workload`: of the first one. A whole model is on one device of them."""
        found = {}
        for role, runner in self.runners.items():
            searched = role == self.job.anchor.role
            spread = searched or runner.evaluator.cluster == before
            found[role] = runner.on(
                workload if searched else runner.evaluator.workload,
                cluster if spread else replace(cluster, nodes=1, gpus_per_node=1),
                cluster,
            )
        return Composer(job=self.job, runners=found)

    def stream(
        self,
        own: RankStream,
        family: Family,
        batch: Batch,
        trace: StepTrace,
        engine: Engine | None,
        stage: StagedRank | None = None,
    ) -> RankStream:
        """The rank's stream with all other models; `stage`: which rank it is of a pipeline of Megatron's workers."""
        return _Composed(self, own, family, batch, trace, engine, stage).build()

    def resting(self, role: str, family: Family, batch: Batch, stage: StagedRank | None = None) -> Storages:
        """What stands of a model that is not searched while others compute."""
        runner = self.runners[role]
        if runner.passes is None or stage is None:
            return runner.rest(family, batch)
        if runner.given.trains:
            return runner.passes.rest(family, batch, stage.rank)
        seq_len = next(phase.seq_len for phase in self.job.phases if role in phase.roles)
        return runner.passes.weights(stage.layout, family, seq_len, stage.rank)

    def host_bytes(self, own: RankStream, family: Family, batch: Batch, stage: StagedRank | None = None) -> int:
        """RAM of a rank for what lies there between its phases, and for what the others' strategies keep there."""
        found = 0
        for role, runner in self.runners.items():
            searched = role == self.job.anchor.role
            found += 0 if searched or runner.passes is not None else runner.host_bytes(family, batch)
            if runner.given.between is not Between.DEVICE:
                rest = rest_of(own, batch.micro_batch)[1] if searched else self.resting(role, family, batch, stage)
                found += moved_of(rest, runner).nbytes
        return found


def away_of(rest: Storages, given: ModelGiven) -> Storages:
    """What of a model lies on the host while it does not compute."""
    return rest.part(_away_rows(rest, given))


def staying_of(rest: Storages, given: ModelGiven) -> Storages:
    """What of it never leaves the device."""
    return rest.part(~_away_rows(rest, given))


def moved_of(rest: Storages, runner: Runner) -> Storages:
    """What of that is moved: gradients that Megatron's workers give up are made anew, and what stands for them too.

    verl (b178a3cd), utils/megatron_utils.py: offload_megatron_model_to_cpu, offload_megatron_optimizer.
    """
    away = away_of(rest, runner.given)
    if runner.passes is None:
        return away
    dummies = np.asarray([DUMMY in module for module in away.modules], dtype=np.bool_).reshape(len(away.modules))
    return away.part(~away.gradients() & ~dummies)


def _away_rows(rest: Storages, given: ModelGiven) -> NDArray[np.bool_]:
    if given.between is Between.WEIGHTS:
        return ~rest.computing()
    if given.between is Between.GRADIENTS:
        return rest.optimizing()
    if given.between is Between.OPTIMIZER:
        return ~rest.optimizing()
    return np.full(len(rest.labels), given.between is Between.HOST, dtype=np.bool_)


class _Composed:
    """One candidate's device."""

    def __init__(
        self,
        composer: Composer,
        own: RankStream,
        family: Family,
        batch: Batch,
        trace: StepTrace,
        engine: Engine | None,
        stage: StagedRank | None,
    ) -> None:
        self._composer, self._stage = composer, stage
        self._job, self._runners = composer.job, composer.runners
        self._own, self._family, self._batch, self._trace, self._engine = own, family, batch, trace, engine
        self._together = Together(own)
        self._here, self._rest = rest_of(own, batch.micro_batch)
        self._left: IntArray | None = left_by(own)
        """Batch and outputs of the update, until another phase begins."""
        gone = _away_rows(self._rest, composer.job.anchor)
        computing = self._rest.computing()
        self._weights = self._rest.part(gone & computing)
        """What of the searched model lies on the host while it does not compute."""
        self._placed: IntArray | None = self._here[gone & computing]
        """These storages; None while they lie on the host."""
        self._training: IntArray | None = self._here[gone & ~computing]
        """What is there to train alone; None once another phase has begun."""

    def build(self) -> RankStream:
        """Residents first; then, behind the training run, every phase in the document's order."""
        for role, runner in self._runners.items():
            if role != self._job.anchor.role and runner.given.between is not Between.HOST:
                self._together.beside(self._staying(role))
        if self._trace.num_tensors:  # what stands alone has no phases
            for phase in self._job.phases:
                for role in phase.roles:
                    self._one(phase, role)
        return self._together.build()

    def _resting(self, role: str) -> Storages:
        return self._composer.resting(role, self._family, self._batch, self._stage).owned(role)

    def _staying(self, role: str) -> Storages:
        """What of a model never leaves the device."""
        return staying_of(self._resting(role), self._runners[role].given)

    def _one(self, phase: PhaseGiven, role: str) -> None:
        """One model's part of a phase."""
        searched = role == self._job.anchor.role
        if searched and phase.does is Does.TRAIN:
            return  # The run itself.
        needed = searched or phase.does is Does.SYNC
        self._leave()
        self._send_away(needed)
        self._together.begin(_KINDS[phase.does], phase.name)
        self._bring_back(needed)
        if role not in self._runners:
            self._engine_part(phase, role)
        elif searched:
            self._searched_part(phase)
        else:
            self._other_part(phase, role)

    def _leave(self) -> None:
        """Each phase is a function of its own: what it named is gone when the next begins."""
        if self._left is not None:
            self._together.send(self._left)
            self._left = None

    def _send_away(self, needed: bool) -> None:
        """What of the searched model lies on the host meanwhile goes, as one whole, where a phase does without."""
        if self._training is not None:
            self._together.send(self._training)
            self._training = None
        if self._placed is not None and not needed:
            self._together.send(self._placed)
            self._placed = None

    def _bring_back(self, needed: bool) -> None:
        """Weights come in the phase that needs them; what comes for training is there when the run itself begins."""
        if self._placed is None and needed:
            self._placed = self._together.bring(self._weights.owned(self._job.anchor.role))

    def _engine_part(self, phase: PhaseGiven, role: str) -> None:
        if self._engine is None:
            return
        taken = self._engine.generating() if phase.does is Does.GENERATE else self._waking()
        standing = made((one.nbytes, one.category, one.label) for one in taken)
        if self._stage is not None and phase.does is Does.SYNC:
            spec = self._runners[self._job.anchor.role].evaluator.provider.spec()
            standing = standing.joined(exported(self._stage.layout, _HALF * spec.num_parameters))
        self._for_a_moment(standing.owned(role))

    def _waking(self) -> tuple[Standing, ...]:
        """The engine's weights, and one parameter of the policy that is gathered for it."""
        assert self._engine is not None
        element = 2
        sharded = self._family.strategy.traits.shards_model
        largest = max((one.numel for one in self._trace.parameters), default=0) * element if sharded else 0
        gathered = Standing(
            nbytes=largest, category=Category.COMMUNICATION, label="a parameter, gathered for the engine"
        )
        return (*self._engine.waking(), gathered)

    def _for_a_moment(self, storages: Storages) -> None:
        numbers = self._together.bring(storages)
        self._together.send(numbers)

    def _searched_part(self, phase: PhaseGiven) -> None:
        """The model that is searched, in another phase than its update."""
        role = self._job.anchor.role
        runner, rows = self._runners[role], self._rows(phase)
        if phase.does is Does.GENERATE:
            assert runner.generating is not None
            self._generate(runner.generating(phase, rows), role)
            return
        staged = self._staged(runner, phase, rows)
        if staged is None:
            stream = forward_stream(runner.evaluator, self._family, phase, rows, frozen=False)
            staged = window_of(stream, rows, second_pass(stream))
        self._together.play(staged.owned(role))

    def _staged(self, runner: Runner, phase: PhaseGiven, rows: int) -> Window | None:
        """What a rank of Megatron's workers makes in passes without gradients; None for any other model."""
        stage = self._stage
        if stage is None or runner.passes is None:
            return None
        samples = self._batch.micro_batch * self._batch.accumulation_steps if phase.cut is None else phase.cut.samples
        return runner.passes.window(stage.layout, self._family, phase, rows, max(rows, samples), stage.rank)

    def _generate(self, window: Window, role: str) -> None:
        """Beside weights that are gathered whole, or cast."""
        traits, regime = self._family.strategy.traits, self._runners[role].evaluator.variant(self._family).regime
        whole = sum(one.numel for one in self._trace.parameters if not one.tied_to)
        beside = 0
        if traits.shards_model:
            # trl's ds3_gather_for_generation gathers the whole model; FSDP's units are gathered as in forward.
            beside = 2 * whole if traits.uses_deepspeed else gathered_bytes(self._own, self._batch.micro_batch)
        label = "weights gathered for generate" if beside else "weights cast by autocast"
        plain = self._runners[role].given.head is Head.SHARED
        beside = beside or (0 if plain else cast_bytes(self._trace, regime))
        numbers = self._together.bring(made([(beside, Category.COMMUNICATION, label)]).owned(role))
        self._together.play(window.owned(role))
        self._together.send(numbers)

    def _other_part(self, phase: PhaseGiven, role: str) -> None:
        runner, rows = self._runners[role], self._rows(phase)
        brought = None
        trains = phase.does is Does.TRAIN
        away = away_of(self._resting(role), runner.given)
        away = away if trains else away.part(away.computing())
        if len(away.labels):
            brought = self._together.bring(away)
        if phase.does is Does.TRAIN:
            # In the phase of the first one it takes as many samples; in one of its own as many as that says.
            own = phase is not self._job.update and phase.micro_batch is not None
            batch = replace(self._batch, micro_batch=rows) if own else self._batch
            if runner.passes is not None and self._stage is not None:
                window = runner.passes.iteration(self._family, batch, self._stage.rank)
            else:
                window = runner.update(self._family, batch)
        elif phase.does is Does.GENERATE:
            assert runner.generating is not None
            window = runner.generating(phase, rows)
        else:
            window = self._staged(runner, phase, rows) or runner.forward(self._family, phase, rows)
        self._together.play(window.owned(role))
        if brought is not None:
            self._together.send(brought)

    def _rows(self, phase: PhaseGiven) -> int:
        """Samples of a pass: as the document says, else as the update takes them, a whole step's for a rollout."""
        whole = phase.does is Does.GENERATE
        return phase.micro_batch or self._batch.micro_batch * (self._batch.accumulation_steps if whole else 1)
