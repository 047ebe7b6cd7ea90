"""Hooks on torch itself: every optimizer's step, the outermost backward pass, fp16's loss scaler, the models' calls."""

import functools
import sys
from typing import Any
from weakref import ref

from gpu_plan.executor.runner.hooks.clipping import clipping
from gpu_plan.executor.runner.imports import PostImport
from gpu_plan.executor.runner.observe.observer import Observer
from gpu_plan.executor.runner.recorder import Recorder


def install(torch: Any, recorder: Recorder, imports: PostImport) -> Observer:
    """After `import torch`."""
    observer = Observer(torch, recorder)
    scaled = ScaledLosses()
    _optimizers(recorder)
    _backward(torch, recorder, scaled)
    _scaler(torch, recorder, scaled)
    _clipping(torch, recorder)
    observer.install()

    def unpatched(module: Any) -> None:
        # It remembers what `Module.__call__` is, to tell modules whose call somebody has changed.
        module.unpatched_nn_module_call = observer.forwards.original(module.unpatched_nn_module_call)

    imports.when("torch._dynamo.utils", unpatched)
    return observer


def _optimizers(recorder: Recorder) -> None:
    def begins(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.guard("an optimizer's step", recorder.optimizer_begins)

    def ends(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.guard("an optimizer's step", recorder.optimizer_ends, optimizer)

    module: Any = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
    module.register_optimizer_step_pre_hook(begins)
    module.register_optimizer_step_post_hook(ends)


def _backward(torch: Any, recorder: Recorder, scaled: "ScaledLosses") -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.guard("a backward pass", recorder.backward_begins, scaled.unscaled(scalar(tensors)))
        try:
            return original(tensors, *args, **kwargs)
        finally:
            recorder.guard("a backward pass", recorder.backward_ends)

    torch.autograd.backward = backward


def _clipping(torch: Any, recorder: Recorder) -> None:
    noted = clipping(torch.nn.utils.clip_grad_norm_, recorder)
    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = noted


def scalar(tensors: Any) -> Any | None:
    """The one-element tensor that a backward pass starts from, where there is one."""
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    plain = type(first).__name__ in ("Tensor", "Parameter")
    return first if plain and first.numel() == 1 and first.is_floating_point() else None


class ScaledLosses:
    """The loss of which fp16's scaler has made a multiple."""

    def __init__(self) -> None:
        self._last: tuple[Any, Any] | None = None

    def note(self, scaled: Any, loss: Any) -> None:
        """`scaled` was made from `loss`; kept until it is passed to backward, without its graph."""
        self._last = (ref(scaled), loss.detach())

    def unscaled(self, tensor: Any) -> Any:
        """The loss that `tensor` is a multiple of, else `tensor` itself."""
        last, self._last = self._last, None
        return last[1] if last is not None and tensor is not None and last[0]() is tensor else tensor


def _scaler(torch: Any, recorder: Recorder, scaled: ScaledLosses) -> None:
    """A step that the scaler leaves out, for an overflow, calls no optimizer. (A fused one is called all the same.)"""
    kind = torch.amp.grad_scaler.GradScaler
    scale, step = kind.scale, kind.step

    @functools.wraps(scale)
    def scales(self: Any, outputs: Any) -> Any:
        found = scale(self, outputs)
        if found is not outputs and scalar(outputs) is outputs:
            recorder.guard("a scaled loss", scaled.note, found, outputs)
        return found

    @functools.wraps(step)
    def steps(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = recorder.optimizer_calls
        found = step(self, optimizer, *args, **kwargs)
        if recorder.optimizer_calls == before and recorder.outside_optimizer:
            recorder.guard("a skipped step", recorder.step_skipped)
        return found

    kind.scale, kind.step = scales, steps
