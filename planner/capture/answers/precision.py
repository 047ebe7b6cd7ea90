"""Autocast as the script opens it, seen by the tracing machinery, or overruled by a strategy's regime."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.trace.setup.autocast import Autocast
from gpu_plan.planner.trace.variant import Regime


class Regions:
    """The autocast regions of one run."""

    def __init__(self, imposed: Regime | None, on_cpu: bool) -> None:
        self.state = Autocast(torch.bfloat16)
        self.seen: str | None = None
        """16-bit type of the first region that was open during a training forward; None without one."""
        self.imposed = imposed
        self._default = torch.bfloat16 if on_cpu else torch.float16

    def open(self, dtype: torch.dtype | None, enabled: bool) -> tuple[bool, torch.dtype]:
        """Enters a region; gives what `close` restores."""
        before = self.state.dtype
        wanted = dtype or self._default
        if self.imposed is not None:
            wanted = getattr(torch, self.imposed.autocast) if self.imposed.autocast else wanted
            enabled = enabled and self.imposed.autocast is not None
        if enabled:
            self.state.dtype = wanted
            self.seen = self.seen or str(wanted).removeprefix("torch.")
        return self.state.enter(enabled), before

    @contextlib.contextmanager
    def around_forward(self) -> Iterator[None]:
        """Around a training forward of the model: the region that a strategy opens where the script opens none."""
        if self.imposed is None or self.imposed.autocast is None:
            yield
            return
        before = self.open(None, True)
        try:
            yield
        finally:
            self.close(before)

    def close(self, before: tuple[bool, torch.dtype]) -> None:
        self.state.leave(before[0])
        self.state.dtype = before[1]


@contextlib.contextmanager
def scaled_in_sixteen_bits() -> Iterator[None]:
    """Within, a GradScaler takes gradients in 16 bits.

    torch/amp/grad_scaler.py: unscale_ refuses them, since a script that keeps weights in fp16 has none in fp32. A
    strategy that keeps them (DeepSpeed's) scales by itself, and the script has no scaler under it.
    """
    unscale = torch.amp.GradScaler._unscale_grads_

    def taken(scaler: Any, optimizer: Any, inverse: Any, found: Any, allow_fp16: bool) -> Any:
        return unscale(scaler, optimizer, inverse, found, True)

    with mock.patch.object(torch.amp.GradScaler, "_unscale_grads_", taken):
        yield


@contextlib.contextmanager
def autocast_regions(regions: Regions) -> Iterator[None]:
    """Within, `torch.autocast` and its relatives open `regions` whatever device they name."""

    class Region(contextlib.AbstractContextManager["Region"]):
        def __init__(
            self, device_type: str = "cuda", dtype: torch.dtype | None = None, enabled: bool = True, **_: Any
        ) -> None:
            self.device, self.fast_dtype, self._enabled = device_type, dtype, enabled
            self._dtype = dtype
            self._open: list[tuple[bool, torch.dtype]] = []

        def __enter__(self) -> "Region":
            self._open.append(regions.open(self._dtype, self._enabled))
            return self

        def __exit__(self, *exc: object) -> None:
            regions.close(self._open.pop())

        def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def inside(*args: Any, **kwargs: Any) -> Any:
                with Region(self.device, self._dtype, self._enabled):
                    return function(*args, **kwargs)

            return inside

    class CudaRegion(Region):
        def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, **_: Any) -> None:
            super().__init__("cuda", dtype, enabled)

    def is_enabled(device_type: str | None = None) -> bool:
        return regions.state.enabled

    def dtype_of(device_type: str | None = None) -> torch.dtype:
        return regions.state.dtype

    with (
        mock.patch.object(torch, "is_autocast_enabled", is_enabled),
        mock.patch.object(torch, "get_autocast_dtype", dtype_of),
        mock.patch.object(torch, "get_autocast_gpu_dtype", dtype_of),
        mock.patch.object(torch, "autocast", Region),
        mock.patch.object(torch.amp, "autocast", Region),
        mock.patch.object(torch.amp.autocast_mode, "autocast", Region),
        mock.patch.object(torch.cuda.amp, "autocast", CudaRegion),
    ):
        yield
