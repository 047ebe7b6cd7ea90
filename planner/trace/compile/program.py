"""Runs the wrapper that inductor wrote, on meta tensors: it allocates, reuses and frees as it would on its device.

The wrapper's own lines are executed as they stand (torch/_inductor/codegen/wrapper.py: PythonWrapperCodegen); only
what touches the device is replaced: allocation gives meta tensors, kernels are names, streams are numbers.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from gpu_plan.planner.trace.compile.kernels import cpp_kernel, triton_kernel
from gpu_plan.planner.trace.compile.lower import Lowered

_LEFT_OUT = (
    "import triton",
    "import torch",
    "from torch._inductor.runtime.triton_heuristics",
    "from torch._C import _cuda_getCurrentRawStream",
    "from torch import device",
    "async_compile = ",
    "empty_strided_cuda = ",
    "empty_strided_cpu = ",
)

Program = Callable[[list[Any]], Any]
"""Takes a list of inputs, which it empties, and returns the outputs."""


def load_program(lowered: Lowered) -> Program:
    """The wrapper's `call`."""
    kept = [line for line in lowered.source.splitlines() if not line.startswith(_LEFT_OUT)]
    names: dict[str, Any] = {
        "torch": _Torch(),
        "device": _meta,
        "empty_strided": torch.empty_strided,
        "async_compile": _AsyncCompile(),
        "empty_strided_cuda": _empty,
        "empty_strided_cpu": _empty,
        "get_raw_stream": lambda index: 0,
        "__name__": "gpu_plan_program",
    }
    exec(compile("\n".join(kept), "<inductor>", "exec"), names)
    names |= {name: _like(constant) for name, constant in lowered.constants.items()}
    call = names["call"]

    def program(args: list[Any]) -> Any:
        with torch.no_grad():
            return call(args)

    program._boxed_call = True  # type: ignore[attr-defined]
    return program


def _empty(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="meta")


def _like(constant: torch.Tensor) -> torch.Tensor:
    return _empty(constant.shape, constant.stride(), constant.dtype)


def _meta(*args: Any, **kwargs: Any) -> torch.device:
    return torch.device("meta")


class _AsyncCompile:
    def triton(self, name: str, source: str, device_str: str = "cuda", **_: Any) -> Any:
        return triton_kernel(name, source)

    def cpp_pybinding(self, argument_types: list[str], source: str, **_: Any) -> Any:
        return cpp_kernel(argument_types, source)

    def wait(self, scope: dict[str, Any]) -> None:
        return None


class _Cuda:
    """torch.cuda, as the wrapper uses it."""

    @staticmethod
    def _DeviceGuard(index: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @staticmethod
    def set_device(index: int) -> None:
        return None


class _HigherOrder:
    """torch.ops.higher_order, and those of its operators that run another under a generator's state (torch/_prims/
    rng_prims.py); the state itself is on the host."""

    @staticmethod
    def graphsafe_run_with_rng_state(operator: Any, *args: Any, rng_state: Any = None, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    @staticmethod
    def run_and_save_rng_state(operator: Any, *args: Any, **kwargs: Any) -> Any:
        return torch.get_rng_state(), operator(*args, **kwargs)

    @staticmethod
    def run_with_rng_state(rng_state: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.ops.higher_order, name)


class _Interpreter(Interpreter):
    """Runs a graph's operators one by one."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, torch._ops.HigherOrderOperator):
            target = getattr(_HigherOrder(), target.name())
        return super().call_function(target, args, kwargs)


def graph_program(graph: GraphModule) -> Program:
    """A graph that is run as it stands (torch/_dynamo/backends/debugging.py: aot_eager)."""

    def program(args: list[Any]) -> Any:
        # An interpreter keeps what it made until it is gone itself.
        with torch.no_grad():
            return _Interpreter(graph).boxed_run(args)

    program._boxed_call = True  # type: ignore[attr-defined]
    return program


class _Ops:
    """torch.ops."""

    higher_order = _HigherOrder()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.ops, name)


class _Torch:
    """torch, whose GPU is not there."""

    cuda = _Cuda()
    ops = _Ops()
    device = staticmethod(_meta)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)
