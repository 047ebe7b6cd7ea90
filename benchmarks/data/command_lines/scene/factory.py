"""Models that no hub knows, named `examples.factory:small_net` on the command line.

A factory takes no arguments. It gives a module, or a module with the inputs of one step, whose first dimension is the
micro batch; the loss is the output if that is a single number, else its `.loss`, else its first element.
"""

import torch
from torch import nn


class SmallNet(nn.Module):
    """A classifier of 32×32 pictures, with its loss."""

    def __init__(self, width: int = 512, classes: int = 100) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, kernel_size=4, stride=4),
            nn.GELU(),
            nn.Conv2d(width, width, kernel_size=3, padding=1),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        # Engines that hold 16-bit parameters without autocast, such as DeepSpeed's, leave the inputs as they are.
        pictures = pictures.to(self.head.weight.dtype)
        return nn.functional.cross_entropy(self.head(self.body(pictures)), labels)


def small_net() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The model, and inputs by keyword for a micro batch of 8."""
    return SmallNet(), {"pictures": torch.zeros(8, 3, 32, 32), "labels": torch.zeros(8, dtype=torch.long)}
