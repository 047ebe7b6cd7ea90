"""Stands above autograd and makes the meta device compute what the planned device would.

Sends attention, dropout and RMS normalisation to the operators that the device runs, and applies autocast.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.functional
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from gpu_plan.planner.trace.kernels.attention import AttentionBackend, AttentionCall, run_backend
from gpu_plan.planner.trace.kernels.temporaries import KernelProfile
from gpu_plan.planner.trace.setup.autocast import Autocast, autocast_handlers

_SDPA = F.scaled_dot_product_attention
_LINEAR = torch._C._nn.linear
Around = Callable[[], contextlib.AbstractContextManager[None]]
_DROPOUT = {torch.dropout, torch._VF.dropout}
_RMS_NORM = {torch.rms_norm, torch._VF.rms_norm} if hasattr(torch, "rms_norm") else set()


class DeviceFunctions(TorchFunctionMode):
    """Function mode that replaces what meta would compute otherwise than the device."""

    def __init__(
        self,
        profile: KernelProfile,
        autocast: Autocast | None,
        force_flash: bool,
        runs: Callable[[AttentionBackend, AttentionCall], torch.Tensor] = run_backend,
        around_linear: Around = contextlib.nullcontext,
    ) -> None:
        super().__init__()
        self._around_linear = around_linear
        self._runs = runs
        self._profile = profile
        self._autocast = autocast
        self._force_flash = force_flash
        self._handlers = autocast_handlers() if autocast is not None else {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _LINEAR:
            with self._around_linear():
                return self._called(func, args, kwargs or {})
        return self._called(func, args, kwargs or {})

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        state = self._autocast
        if state is not None and state.enabled:
            handler = self._handlers.get(func)
            if handler is not None:
                return handler(state, self._device_call(func), args, kwargs)
        return self._device_call(func)(*args, **kwargs)

    def _device_call(self, func: Any) -> Any:
        if func is _SDPA:
            return self._attention
        if func in _DROPOUT and self._profile.fused_dropout:
            return _dropout
        if func in _RMS_NORM and self._profile.fused_rms_norm:
            return _rms_norm
        return func

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        call = AttentionCall(
            query=query,
            key=key,
            value=value,
            mask=None if self._force_flash else attn_mask,
            dropout=dropout_p,
            causal=is_causal,
            scale=scale,
            grouped=enable_gqa,
        )
        backend = AttentionBackend.FLASH if self._force_flash else self._profile.attention_backend(call)
        if (backend is AttentionBackend.MATH and self._runs is run_backend) or query.device.type != "meta":
            return _SDPA(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        return self._runs(backend, call)


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p == 0.0:
        return input
    return torch.native_dropout(input, p, train)[0]


def _rms_norm(
    input: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    out: torch.Tensor = torch.ops.aten._fused_rms_norm(input, list(normalized_shape), weight, eps)[0]
    return out


def _never(*args: Any, **kwargs: Any) -> bool:
    return False


@contextlib.contextmanager
def python_wrappers_open() -> Iterator[None]:
    """Lets the mode see the calls inside torch's Python-level functions, as the dispatcher would.

    Otherwise `F.cross_entropy` and its like are handed over whole, and what they call runs unseen.
    """
    names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    with contextlib.ExitStack() as stack:
        for home in (F, torch.functional, torch._tensor, torch.autograd):
            for name in names:
                if hasattr(home, name):
                    stack.enter_context(mock.patch.object(home, name, _never))
        yield


@contextlib.contextmanager
def autocast_visible(state: Autocast | None) -> Iterator[None]:
    """Makes model code that asks about autocast, or switches it off for a stretch, see the emulated one."""

    def is_enabled(device_type: str | None = None) -> bool:
        return state is not None and state.enabled

    def dtype_of(device_type: str | None = None) -> torch.dtype:
        return state.dtype if state is not None else torch.float16

    class Region(contextlib.AbstractContextManager["Region"], contextlib.ContextDecorator):
        def __init__(
            self, device_type: str = "cuda", dtype: torch.dtype | None = None, enabled: bool = True, **_: Any
        ) -> None:
            self._wanted = enabled

        def __enter__(self) -> "Region":
            self._before = state.enter(self._wanted) if state is not None else False
            return self

        def __exit__(self, *exc: object) -> None:
            if state is not None:
                state.leave(self._before)

    with (
        mock.patch.object(torch, "is_autocast_enabled", is_enabled),
        mock.patch.object(torch, "get_autocast_dtype", dtype_of),
        mock.patch.object(torch, "get_autocast_gpu_dtype", dtype_of),
        mock.patch.object(torch, "autocast", Region),
        mock.patch.object(torch.amp, "autocast", Region),
    ):
        yield
