"""`torchvision.ops.misc.FrozenBatchNorm2d` where torchvision is not installed: a batch norm whose numbers are buffers.

torchvision 0.28: ops/misc.py (FrozenBatchNorm2d).
"""

from typing import Any


def frozen_batch_norm() -> type[Any]:
    """The class; torch is imported when it is asked for."""
    import torch

    class FrozenBatchNorm2d(torch.nn.Module):
        """Weight, bias, mean and variance of each channel, none of them trained."""

        def __init__(self, num_features: int, eps: float = 1e-5) -> None:
            super().__init__()
            self.eps = eps
            for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
                self.register_buffer(name, torch.full((num_features,), value))

        def forward(self, x: Any) -> Any:
            own: Any = self
            scale = own.weight.reshape(1, -1, 1, 1) * (own.running_var.reshape(1, -1, 1, 1) + self.eps).rsqrt()
            return x * scale + (own.bias.reshape(1, -1, 1, 1) - own.running_mean.reshape(1, -1, 1, 1) * scale)

    return FrozenBatchNorm2d
