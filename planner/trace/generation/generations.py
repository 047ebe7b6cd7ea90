"""What an evaluation asks of a model that generates."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from gpu_plan.planner.model.quantization import Scheme
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.variant import GenerationVariant


class Generations(Protocol):
    """Generations and facts of one model, in one weight type, on one kind of device."""

    @property
    def scheme(self) -> Scheme | None:
        """How weights are quantised, if they are."""

    def spec(self) -> ModelSpec:
        """Parameters and identity."""

    def merged(self) -> frozenset[str]:
        """Parameters that loading puts together from several of the checkpoint's tensors."""

    def copies(self) -> Mapping[str, str]:
        """Tied parameters that the checkpoint holds as tensors of their own: name to what they are tied to."""

    def trace(self, variant: GenerationVariant) -> StepTrace:
        """The generation that `variant` describes."""

    def held(self) -> AbstractContextManager[None]:
        """Within, several sizes of one rank's part are asked for, one after the other."""

    def assumptions(self) -> tuple[list[str], list[str]]:
        """Host reads that were answered, and notes."""
