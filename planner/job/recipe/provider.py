"""Traces of a recipe: another micro batch is another argument of its script."""

from dataclasses import replace

from gpu_plan.planner.capture.provider import CapturedProvider
from gpu_plan.planner.capture.request import CaptureRequest


class RecipeProvider(CapturedProvider):
    """A script that is told its batch, of which a trainer makes more than one loader's."""

    def of_batch(self, request: CaptureRequest, micro_batch: int) -> CaptureRequest:
        """The same run with another `--batch`."""
        words = list(request.arguments)
        words[words.index("--batch") + 1] = str(micro_batch)
        return replace(request, arguments=tuple(words))
