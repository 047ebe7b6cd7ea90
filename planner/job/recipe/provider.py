"""Traces of a recipe: another micro batch is another argument of its script."""

from dataclasses import dataclass, field, replace

from gpu_plan.planner.capture.provider import CapturedProvider
from gpu_plan.planner.capture.request import CapturedFacts, CaptureRequest, Passage
from gpu_plan.planner.capture.watch.names import ROLLOUTS
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.training import Checkpointing

_Types = tuple[Regime | None, Checkpointing | None]


@dataclass(kw_only=True)
class RecipeProvider(CapturedProvider):
    """A script that is told its batch, of which a trainer makes more than one loader's."""

    model: str = ""
    """Name under which the trained model was asked for."""
    _rollouts: dict[_Types, tuple[Passage, ...]] = field(default_factory=dict)
    """What generations hold by the types and the checkpointing of a run: the same for every micro batch, of which their
    bytes are a line."""

    def spec(self) -> ModelSpec:
        """Parameters of the recipe's models, under the name of the one that is trained."""
        return replace(super().spec(), id=self.model)

    def of_batch(self, request: CaptureRequest, micro_batch: int) -> CaptureRequest:
        """The same run with another `--batch`."""
        words = list(request.arguments)
        words[words.index("--batch") + 1] = str(micro_batch)
        return replace(request, arguments=tuple(words))

    def _known_rollouts(self, request: CaptureRequest) -> tuple[Passage, ...]:
        return self._rollouts.get((request.regime, request.checkpointing), ())

    def _captured(self, request: CaptureRequest) -> tuple[CapturedFacts, StepTrace]:
        facts, trace = super()._captured(request)
        found = tuple(one for one in facts.passages if one.name in ROLLOUTS)
        self._rollouts.setdefault((request.regime, request.checkpointing), found)
        return facts, trace
