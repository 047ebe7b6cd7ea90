"""Where a block's tensors lie: on the planned GPU, but for what a program keeps on the CPU whatever it trains on."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.utils._device import _device_constructors
from torch.utils.data import dataloader

from gpu_plan.planner.capture.answers.placement import META, Placement
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.inputs.known import KnownValues

if TYPE_CHECKING:
    from types import FrameType

_ON_CPU = ("torch.optim", "torch.utils.data", "torch.serialization", "torch.testing", "numpy", "gpu_plan.")
"""Who makes its tensors on the CPU where no device is named: step counters, samplers, what is read from a file."""
_PASSED_OVER = (
    "torch._tensor", "torch.overrides", "torch.functional", "gpu_plan.planner.trace.recording.functions",
    "gpu_plan.planner.trace.setup.autocast",
    "gpu_plan.planner.trace.inputs.known", "gpu_plan.planner.capture.answers.placement", __name__,
)  # fmt: skip
"""What stands between a call and whoever makes it."""
_TO_HOST = {torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__}


class BlockPlacement(Placement):
    """Function mode: a tensor made without naming a device is made on the planned GPU, as under torch's own
    `set_default_device`; one that stays on the CPU joins those on the GPU where they are used together.
    """

    def __init__(self, known: KnownValues) -> None:
        super().__init__(known, on_cpu=True)
        self._constructors = _device_constructors()
        self.loading = False
        """Whether a data loader runs: its batches are made on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in self._constructors and kwargs.get("device") is None and not self.loading and not _on_cpu():
            kwargs["device"] = META
        if func in _TO_HOST and args[0].device.type == "meta":
            return self._to_host(func, args, kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    def _to_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The values, where they follow from the inputs. InputError where they would have to be computed."""
        value = self._known.get(args[0])
        if value is None:
            raise InputError(
                f"{_place()} reads a tensor's values with .{func.__name__}(), and nothing computes any here:"
                " move that out of the measured block"
            )
        return func(value, *args[1:], **kwargs)


@contextlib.contextmanager
def loaders_on_cpu(placement: BlockPlacement) -> Iterator[None]:
    """Within, what a data loader makes while it puts a batch together stays on the CPU."""
    home = dataloader._BaseDataLoaderIter
    original = home.__next__

    def following(iterator: Any) -> Any:
        before, placement.loading = placement.loading, True
        try:
            return original(iterator)
        finally:
            placement.loading = before

    with mock.patch.object(home, "__next__", following):
        yield


def _frames() -> "Iterator[FrameType]":
    """Callers outside this module and torch's own plumbing, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(_PASSED_OVER):
            yield frame
        frame = frame.f_back


def _on_cpu() -> bool:
    frame = next(_frames(), None)
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_ON_CPU)


def _place() -> str:
    """File and line of the innermost frame outside torch and the planner."""
    for frame in _frames():
        if not str(frame.f_globals.get("__name__", "")).startswith(("torch", "gpu_plan.")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return "a library"
