"""Makes inductor lower graphs for a GPU that this machine does not have.

What inductor asks of a device while it lowers, fuses and writes its wrapper is little: compute capability, number of
multiprocessors, a few limits. They are answered here. Nothing is run, and Triton is not needed: kernels are text.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._dynamo.device_interface import CudaInterface
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.runtime.hints import DeviceProperties


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The device that code is made for."""

    capability: tuple[int, int] | None
    """None: the CPU."""
    sm_count: int = 0

    @property
    def device(self) -> torch.device:
        """As inductor names it."""
        return torch.device("cpu") if self.capability is None else torch.device("cuda", 0)


@contextlib.contextmanager
def pretended(target: Target) -> Iterator[None]:
    """Within, inductor believes that `target` is there; nothing but lowering may be done."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(with_generators())
        _patterns_of_the_host(stack)
        _constants_of_the_host(stack)
        _without_device_guards(stack)
        if target.capability is not None:
            _gpu(stack, _properties(target), target.capability)
        yield


@contextlib.contextmanager
def with_generators() -> Iterator[None]:
    """Within, graphs that carry states of the GPU's random numbers find a generator; they run like that as well."""
    with (
        mock.patch.object(torch.cuda, "_get_generator", _generator),
        mock.patch.object(torch.cuda, "default_generators", (_Generator(),)),
    ):
        yield


def _generator(device: torch.device) -> "_Generator":
    return _Generator()


class _Generator(torch.Generator):
    """A generator of the host's that says it is the GPU's."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)

    def clone_state(self) -> "_Generator":
        return _Generator()


def _properties(target: Target) -> Any:
    """torch.cuda.get_device_properties, as far as inductor reads it; limits that all GPUs since Volta share."""
    assert target.capability is not None
    major, minor = target.capability
    return SimpleNamespace(
        name="GPU",
        gcnArchName="",
        major=major,
        minor=minor,
        multi_processor_count=target.sm_count,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=1536 if (major, minor) in ((8, 6), (8, 9)) or major == 12 else 2048,
        max_threads_per_block=1024,
        warp_size=32,
        total_memory=80 << 30,
        shared_memory_per_block_optin=(99 if (major, minor) in ((8, 6), (8, 9)) or major == 12 else 163) << 10,
        L2_cache_size=40 << 20,
    )


def _gpu(stack: contextlib.ExitStack, properties: Any, capability: tuple[int, int]) -> None:
    def answer(value: Any) -> Any:
        return lambda *args, **kwargs: value

    answers = {
        "get_device_properties": properties,
        "get_device_capability": capability,
        "current_device": 0,
        "device_count": 1,
        "is_bf16_supported": capability >= (8, 0),
    }
    for name, value in answers.items():
        stack.enter_context(mock.patch.object(torch.cuda, name, answer(value)))
    interface = {
        "get_device_properties": properties,
        "get_compute_capability": capability[0] * 10 + capability[1],
        "current_device": 0,
        "device_count": 1,
        "is_bf16_supported": capability >= (8, 0),
    }
    for name, value in interface.items():
        stack.enter_context(mock.patch.object(CudaInterface, name, staticmethod(answer(value))))
    stack.enter_context(mock.patch("torch._inductor.scheduler.has_triton", answer(True)))
    stack.enter_context(mock.patch("torch.utils._triton.triton_hash_with_backend", answer("")))
    DeviceProperties.create.cache_clear()
    stack.callback(DeviceProperties.create.cache_clear)


def _patterns_of_the_host(stack: contextlib.ExitStack) -> None:
    """Patterns are traced once on real tensors to be found in graphs later: they are made on the CPU.

    torch/_inductor/fx_passes: joint_graph.py and post_grad.py, lazy_init.
    """
    for home in (joint_graph, post_grad):
        original = home.lazy_init

        def on_host(*input_device: Any, original: Any = original) -> None:
            original(*(torch.device("cpu") for _ in input_device))

        stack.enter_context(mock.patch.object(home, "lazy_init", on_host))


def _constants_of_the_host(stack: contextlib.ExitStack) -> None:
    """Values that are the same everywhere are worked out on one element of real data: on the CPU."""
    folder = joint_graph.UniformValueConstantFolder
    original = folder._deduce_value

    def deduce(self: Any, node: Any) -> Any:
        kwargs = node.kwargs
        if kwargs.get("device") is None:
            return original(self, node)
        node.kwargs = {**kwargs, "device": torch.device("cpu")}
        try:
            return original(self, node)
        finally:
            node.kwargs = kwargs

    stack.enter_context(mock.patch.object(folder, "_deduce_value", deduce))


def _without_device_guards(stack: contextlib.ExitStack) -> None:
    """Some of Python's tensor methods ask for the device before they ask any mode; the operators below do not.

    pytorch tools/autograd/templates/python_variable_methods.cpp: dispatch_copy_, dispatch_invert, dispatch_contiguous.
    """
    aten = torch.ops.aten

    def copy(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
        return aten.copy_.default(self, source, non_blocking)

    def invert(self: torch.Tensor) -> Any:
        return aten.bitwise_not.default(self)

    def contiguous(self: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
        return aten.contiguous.default(self, memory_format=memory_format)

    for name, method in (("copy_", copy), ("__invert__", invert), ("contiguous", contiguous)):
        stack.enter_context(mock.patch.object(torch.Tensor, name, method))
