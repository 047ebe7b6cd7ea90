"""What a schedule has left is the loss's own gradient as soon as the script asks for it, and not before.

A script may clear its gradients between the model's call and `loss.backward()`, divide the loss, or add several calls
up: the step's gradients are kept aside until then, and taken by what `backward` brings.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Step:
    """Gradients of one training call."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        self._before = [(each, each.grad) for each in parameters if each.requires_grad]
        self._made: list[tuple[Any, Any]] = []
        for each, _ in self._before:
            each.grad = None

    def set_aside(self) -> None:
        """After the schedule: its gradients are kept, those of earlier calls stand again."""
        self._made = [(each, each.grad) for each, _ in self._before if each.grad is not None]
        for each, before in self._before:
            each.grad = before
        self._before = []

    def take(self, scale: float) -> None:
        """`backward` has come, from a loss that was made `scale` times as large."""
        made, self._made = self._made, []
        for parameter, gradient in made:
            if scale != 1.0:
                gradient.mul_(scale)
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.add_(gradient)


def loss_of(step: Step, value: Tensor) -> Tensor:
    """A loss with this value; its backward hands the step's gradients over."""
    handed: Tensor = _Handed.apply(torch.zeros((), device=value.device, requires_grad=True), value, step)
    return handed


class _Handed(torch.autograd.Function):  # type: ignore[misc]
    """The value as it is; backward takes the step."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, value: Tensor, step: Step) -> Tensor:
        ctx.step = step
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.step.take(float(gradients[0]))
        return None, None, None
