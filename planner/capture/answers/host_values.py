"""What the script reads of values that meta does not have: answered by policy, each site listed.

The model's own code is held to the named policies of trace/recording/host_read_policies.py; the loop around it (the
user's files, and the training libraries that print, log and compare for the user) is told a plain value: 1.0 for a
loss, False for a condition. What a wrong answer could change is said beside each.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.inputs.known import KnownValues
from gpu_plan.planner.trace.inputs.meta_ops import META_OPS
from gpu_plan.planner.trace.recording.host_reads import READS, Answer, HostReads, UnknownHostReadError

_LOOPS = ("transformers.trainer", "transformers.integrations", "accelerate", "trl", "lightning", "pytorch_lightning",
          "torch.optim", "torchmetrics", "evaluate")  # fmt: skip


class LoopReads(HostReads):
    """Host reads of a whole script."""

    def answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer | None:
        if func in READS and isinstance(args[0], torch.Tensor) and args[0].device.type != "meta":
            return None  # a real value, such as a sampler's seed
        try:
            return super().answer(func, args, kwargs)
        except UnknownHostReadError as unknown:
            frame = _loop_frame()
            if frame is None:
                raise InputError(str(unknown)) from None
            value, assumes = (0.0, "gradients are finite") if _in_scaler() else _value(func, args[0])
            self._note(frame, f"{value!r} ({assumes})")
            return Answer(value)

    def array(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU tensor in place of one on meta whose values leave for NumPy or a list: the true ones, or zeros."""
        with _disable_current_modes():
            value = self._known.get(tensor)
            found = torch.zeros(tensor.shape, dtype=tensor.dtype) if value is None else value.clone()
        frame = _loop_frame() or sys._getframe(1)
        self._note(frame, "values as they are" if value is not None else "zeros (an array that is only looked at)")
        return found


def _value(func: Any, tensor: torch.Tensor) -> tuple[bool | int | float, str]:
    if func in (torch.ops.aten.equal.default, torch.ops.aten.allclose.default):
        return True, "what is compared is equal"
    if tensor.dtype is torch.bool or func is torch.ops.aten.is_nonzero.default:
        return False, "the condition does not hold"
    if tensor.is_floating_point():
        return 1.0, "an ordinary number: finite, and no threshold is reached"
    return 1, "an ordinary count"


def _in_scaler() -> bool:
    """torch/amp/grad_scaler.py: _maybe_opt_step skips the step where anything infinite was found."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.amp.grad_scaler":
            return True
        frame = frame.f_back
    return False


def _loop_frame() -> FrameType | None:
    """The frame of the loop that asks, where no model's own code stands between it and the read."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        path = frame.f_code.co_filename
        if name.startswith(_LOOPS):
            return frame
        if name.startswith("transformers.models"):
            return None
        if "site-packages" not in path and not name.startswith(("gpu_plan.", "torch.", "torch")) and path[:1] != "<":
            return frame
        frame = frame.f_back
    return None


@contextlib.contextmanager
def numbers_formatted() -> Iterator[None]:
    """Within, `f"{loss:.3f}"` reads the number as `loss.item()` does; torch/_tensor.py refuses it on meta."""
    original = torch.Tensor.__format__

    def formatted(tensor: torch.Tensor, spec: str) -> str:
        if spec and tensor.is_meta and tensor.dim() == 0:
            return format(tensor.detach().item(), spec)
        return str(original(tensor, spec))

    with mock.patch.object(torch.Tensor, "__format__", formatted):
        yield


@contextlib.contextmanager
def scripted_or_plain() -> Iterator[None]:
    """Within, what torch.jit.script cannot compile stays the Python that it is.

    It reads the source of every function that is called, and finds those that stand in for torch's own.
    """
    original = torch.jit.script

    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("_rcb") is not None:
            return original(obj, *args, **kwargs)  # one function of what is being compiled
        try:
            return original(obj, *args, **kwargs)
        except Exception:
            return obj

    with mock.patch.object(torch.jit, "script", script):
        yield


class HostValues(TorchDispatchMode):
    """Dispatch mode of the stretches that are not recorded: answers reads, follows known integers."""

    def __init__(self, known: KnownValues, reads: HostReads) -> None:
        super().__init__()
        self._known = known
        self._reads = reads

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        answer = self._reads.answer(func, args, kwargs)
        if answer is not None:
            return answer.value
        if func._overloadpacket.__name__.startswith("_fused_") and func._overloadpacket.__name__.endswith("_"):
            return None  # a fused optimizer update: in place, and no value is known here
        out = META_OPS.get(func, func)(*args, **kwargs)
        self._reads.follow(func, args, kwargs, out)
        return out


@contextlib.contextmanager
def inference_followed() -> Iterator[None]:
    """Within, `torch.inference_mode` is `torch.no_grad`: the same memory, and values of what it makes are followed."""

    def inference_mode(mode: Any = True) -> Any:
        if callable(mode):  # as a decorator without brackets
            return torch.no_grad()(mode)
        return torch.no_grad() if mode else torch.set_grad_enabled(torch.is_grad_enabled())

    with mock.patch.object(torch, "inference_mode", inference_mode):
        yield
