"""Traces of a recipe: another micro batch is another argument of its script."""

from dataclasses import dataclass, replace

from gpu_plan.planner.capture.provider import CapturedProvider
from gpu_plan.planner.capture.request import CaptureRequest
from gpu_plan.planner.model.spec import ModelSpec


@dataclass(kw_only=True)
class RecipeProvider(CapturedProvider):
    """A script that is told its batch, of which a trainer makes more than one loader's."""

    model: str = ""
    """Name under which the trained model was asked for."""

    def spec(self) -> ModelSpec:
        """Parameters of the recipe's models, under the name of the one that is trained."""
        return replace(super().spec(), id=self.model)

    def of_batch(self, request: CaptureRequest, micro_batch: int) -> CaptureRequest:
        """The same run with another `--batch`."""
        words = list(request.arguments)
        words[words.index("--batch") + 1] = str(micro_batch)
        return replace(request, arguments=tuple(words))
