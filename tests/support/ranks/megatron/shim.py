"""Megatron-core without CUDA: what it asks of a device is the CPU's, and streams do nothing.

Nothing is changed that makes, keeps or drops a tensor.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode


class _OnCpu(TorchFunctionMode):
    """`device="cuda"` means the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)


class _Stream:
    """A stream that has nothing to wait for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record_event(self, *_: Any) -> "_Stream":
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


@contextlib.contextmanager
def _as_it_is(*_: Any) -> Iterator[None]:
    """In place of a random state of its own."""
    yield


def _on_host(value: Any, as_numpy: bool = False, **_: Any) -> Any:
    return value.numpy() if as_numpy and isinstance(value, torch.Tensor) else value


class _Over:
    """Handle of what is done already."""

    def wait(self) -> bool:
        return True


def _at_once(call: Any) -> Any:
    """The collective, waited for: a handle would hold its tensors."""

    def run(*args: Any, async_op: bool = False, **kwargs: Any) -> Any:
        done = call(*args, **kwargs)
        return _Over() if async_op else done

    return run


_WITHOUT_FP8 = {
    "FP8GlobalStateManager": mock.Mock(is_fp8_enabled=lambda: False),
    "activation_recompute_forward": lambda **_: contextlib.nullcontext(),
    "fp8_autocast": lambda **_: contextlib.nullcontext(),
}


@contextlib.contextmanager
def without_cuda() -> Iterator[None]:
    """Within, Megatron-core runs on the CPU."""
    from megatron.core.tensor_parallel import random
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    cpu = torch.device("cpu")
    replaced = {"current_device": lambda: cpu, "synchronize": lambda *a, **k: None, "Stream": _Stream,
                "current_stream": lambda *a, **k: _Stream(), "Event": _Stream}  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch.Tensor, "cuda", lambda self, *a, **k: self))
        stack.enter_context(mock.patch.object(CudaRNGStatesTracker, "fork", _as_it_is))
        for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"):
            stack.enter_context(mock.patch.object(dist, name, _at_once(getattr(dist, name))))
        # What is run again takes up the random state of its first time: a GPU's stands in 16 bytes of the host's.
        stack.enter_context(mock.patch.object(random, "_get_cuda_rng_state", return_value=torch.empty(0)))
        stack.enter_context(mock.patch.object(random, "_set_cuda_rng_state"))
        # Without Transformer Engine 0.16.1 leaves names out that it asks for.
        for name, value in _WITHOUT_FP8.items():
            stack.enter_context(mock.patch.object(random, name, value, create=True))
        stack.enter_context(mock.patch.object(moe_utils, "te_general_gemm", None, create=True))
        # It takes what is not on a GPU for what need not be brought to the host.
        stack.enter_context(mock.patch.object(token_dispatcher, "maybe_move_tensor_to_cpu", _on_host))
        stack.enter_context(_OnCpu())
        yield
