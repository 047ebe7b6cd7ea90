"""Hooks on torch itself: every optimizer's step and the outermost backward pass."""

import functools
import sys
from typing import Any

from executor.runner.recorder import Recorder


def install(torch: Any, recorder: Recorder) -> None:
    """After `import torch`."""
    _optimizers(torch, recorder)
    _backward(torch, recorder)


def _optimizers(torch: Any, recorder: Recorder) -> None:
    def begins(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.optimizer_begins()

    def ends(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.optimizer_ends(optimizer)

    module: Any = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
    module.register_optimizer_step_pre_hook(begins)
    module.register_optimizer_step_post_hook(ends)


def _backward(torch: Any, recorder: Recorder) -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.backward_begins(scalar(tensors))
        try:
            return original(tensors, *args, **kwargs)
        finally:
            recorder.backward_ends()

    torch.autograd.backward = backward


def scalar(tensors: Any) -> Any | None:
    """The one-element tensor that a backward pass starts from, where there is one."""
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    plain = type(first).__name__ in ("Tensor", "Parameter")
    return first if plain and first.numel() == 1 and first.is_floating_point() else None
