"""A model whose activations, not its states, take the memory; known to the planner as a factory."""

import torch
from torch import nn


class WideNet(nn.Module):
    """Layers over long rows: a sample leaves 6 MiB behind, the parameters take 0.3 MiB."""

    def __init__(self, rows: int = 4096, width: int = 64, layers: int = 4) -> None:
        super().__init__()
        self.rows = rows
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.pow(2).mean()


def wide_net() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The model, and inputs for a micro batch of 8."""
    return WideNet(), {"x": torch.zeros(8, 4096, 64)}
