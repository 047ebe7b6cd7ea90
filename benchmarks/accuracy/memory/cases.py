"""A training run as it can be judged: by whose code it ran, and how its own fields say it did."""

from benchmarks.accuracy.fsdp_qlora import QloraCase, QloraEstimator, qlora_case_of, qlora_states
from benchmarks.accuracy.kempnerforge.cases import ForgeCase, forge_case_of
from benchmarks.accuracy.kempnerforge.estimate import ForgeEstimator
from benchmarks.accuracy.litgpt.cases import LitCase, lit_case_of
from benchmarks.accuracy.litgpt.estimate import LitEstimator, lit_states
from benchmarks.accuracy.machines import cluster_of
from benchmarks.accuracy.memory.rules import check
from benchmarks.accuracy.models import NOT_AT_HAND, Models
from benchmarks.accuracy.row import Row, SetAside
from benchmarks.accuracy.software import Project, project_of
from benchmarks.accuracy.torchtitan.cases import TitanCase, titan_case_of
from benchmarks.accuracy.torchtitan.estimate import TitanEstimator
from benchmarks.accuracy.trainer.estimate import TrainerEstimator, trainer_states, uncounted_bytes
from benchmarks.accuracy.trainer.setup import Setup, setup_of
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.trace.events import StepTrace

Case = Setup | TitanCase | LitCase | QloraCase | ForgeCase
_SPREADS = (Project.TORCHTITAN, Project.KEMPNERFORGE)
"""Whose tensor parallel is mirrored."""


def case_of(row: Row, models: Models) -> Case:
    """How a row ran. SetAside with the reason why it cannot be said."""
    project = project_of(row)
    check(row, ("tp",) if project in _SPREADS else ())
    cluster = cluster_of(row)
    if project is Project.LITGPT:
        return lit_case_of(row, cluster)
    if project is Project.KEMPNERFORGE:
        return forge_case_of(row, cluster)
    if project is Project.TORCHTITAN:
        return titan_case_of(row, _if_at_hand(row, models), cluster)
    source = models.of(row)
    if project is Project.FSDP_QLORA:
        return qlora_case_of(row, source, cluster)
    return setup_of(row, source, cluster)


def _if_at_hand(row: Row, models: Models) -> ModelSource | None:
    try:
        return models.of(row)
    except SetAside as reason:
        if str(reason) == NOT_AT_HAND:
            return None
        raise


class Estimator:
    """Judges cases of every kind."""

    def __init__(self) -> None:
        self._trainer = TrainerEstimator()
        self._titan = TitanEstimator()
        self._lit = LitEstimator()
        self._qlora = QloraEstimator()
        self._forge = ForgeEstimator()

    def judge(self, case: Case, micro_batch: int) -> StepJudgement:
        """The case under the real capacity of its GPUs."""
        if isinstance(case, TitanCase):
            return self._titan.judge(case, micro_batch)
        if isinstance(case, LitCase):
            return self._lit.judge(case, micro_batch)
        if isinstance(case, QloraCase):
            return self._qlora.judge(case, micro_batch)
        if isinstance(case, ForgeCase):
            return self._forge.judge(case, micro_batch)
        return self._trainer.judge(case, micro_batch)


def states_of(case: Case, trace: StepTrace) -> int:
    """Weights, gradients and optimizer state of one rank, by their parameters alone."""
    if isinstance(case, TitanCase | ForgeCase):
        return case.states(sum(p.numel for p in trace.parameters))
    if isinstance(case, LitCase):
        return lit_states(trace)
    if isinstance(case, QloraCase):
        return qlora_states(case, trace)
    return trainer_states(case, trace)


def uncounted_of(case: Case, trace: StepTrace) -> int:
    """Bytes that stood on the device at the peak and that the run's own counting left out."""
    return uncounted_bytes(case, trace) if isinstance(case, Setup) else 0
