"""A rank's place in a pipeline: its stages, its actions, and where its stages lie in its trace."""

from gpu_plan.planner.pipeline.schedules import Action, Schedule
from gpu_plan.planner.pipeline.stages import StageCut
from gpu_plan.planner.plain.values import dataclass

RECEIVED = "hidden_states"
"""What a stage receives from the one before, as its trace names it."""
SENT_BACK = "output_gradient"
"""What it receives from the one behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpan:
    """Where one stage's forward and backward lie in its rank's trace, as event positions."""

    stage: int
    cut: StageCut
    forward: tuple[int, int]
    backward: tuple[int, int]
    weights: int | None = None
    """Where the gradients of its weights begin, of a backward that is split."""
    tensors: tuple[int, int]
    """Its storages, from one number to another, the latter left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRank:
    """One rank's place in a pipeline."""

    rank: int
    ranks: int
    schedule: Schedule
    order: tuple[Action, ...]
    micro_batches: int
    spans: tuple[StageSpan, ...]
    keeps_sent: bool = False
    """Whether what was sent is held until the step is over: gloo's handles hold it, NCCL's let it go."""

    def span_of(self, stage: int) -> StageSpan:
        """Of one of its stages."""
        return next(span for span in self.spans if span.stage == stage)
