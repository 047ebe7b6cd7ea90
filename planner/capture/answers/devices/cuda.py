"""What a script that asks torch about CUDA is told: that it stands on one of the planned GPUs."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.capture.answers.devices import watching
from gpu_plan.planner.capture.answers.devices.graphs import Graphs
from gpu_plan.planner.capture.answers.devices.stream import NoStream
from gpu_plan.planner.capture.request import PlannedDevice
from gpu_plan.planner.errors import InputError

_NOTHING = (
    "synchronize", "empty_cache", "set_device", "manual_seed", "manual_seed_all", "seed", "seed_all", "init",
    "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_accumulated_memory_stats", "ipc_collect",
    "set_per_process_memory_fraction", "_lazy_init", "_lazy_call",
)  # fmt: skip
_ZERO = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "current_device",
    "initial_seed", "utilization",
)  # fmt: skip
_MODULES = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.graphs, torch.cuda.streams)
"""Where scripts find them."""
_MISSING = ("_cuda_getCurrentRawStream", "_cuda_getDevice", "_cuda_setDevice")
"""What a build without CUDA lacks and libraries look up as soon as CUDA is said to be there."""


class _Properties(SimpleNamespace):
    """Of the planned GPU, as far as they are known: what is not has a name in the error that it ends in."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            raise AttributeError(f"{name} is not among the properties that are known of the planned {self.name}")
        raise AttributeError(name)


class _Counters(dict[str, int]):
    """Of the allocator, `allocated_bytes.all.peak` and the like: none counts anything."""

    def __missing__(self, name: str) -> int:
        return 0


def _none_planned(device: Any) -> None:
    raise InputError(f"the script takes a GPU for itself (torch.cuda.set_device({device})), and CPUs are planned")


@contextlib.contextmanager
def cuda_answers(device: PlannedDevice, seen: int, graphs: Graphs | None = None) -> Iterator[None]:
    """Within, `torch.cuda` answers as to one rank of a job on the planned GPUs, `seen` of which it sees.

    `graphs` counts what CUDA graphs it records.

    A CPU cluster leaves it as it is, but for a rank that takes a GPU for itself.
    """
    if device.capability_major is None:
        with mock.patch.object(torch.cuda, "set_device", _none_planned):
            yield
        return
    capability = (device.capability_major, device.capability_minor)
    properties = _Properties(
        name=device.name,
        major=capability[0],
        minor=capability[1],
        total_memory=device.total_bytes,
        multi_processor_count=device.sm_count,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
        **watching.limits(capability),
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: seen,
        "get_device_name": lambda *_: device.name,
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: properties,
        "mem_get_info": lambda *_: (device.total_bytes, device.total_bytes),
        "is_bf16_supported": lambda *_, **__: device.bf16,
        "memory_stats": lambda *_: _Counters(),
        "memory_summary": lambda *_, **__: "",
        "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "current_stream": lambda *_: NoStream(),
        "default_stream": lambda *_: NoStream(),
        "Stream": NoStream,
        "stream": NoStream,
        "Event": NoStream,
        "device": NoStream,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state": lambda *_, **__: None,
        "set_rng_state_all": lambda *_: None,
        "default_generators": (torch.default_generator,) * seen,
    }
    answers |= (graphs or Graphs()).answers() | watching.OTHERWISE
    answers |= {name: lambda *_, **__: None for name in (*_NOTHING, *watching.NOTHING)}
    answers |= {name: lambda *_, **__: 0 for name in (*_ZERO, *watching.ZERO)}
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            for module in _MODULES:
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, answer))
        for name in _MISSING:
            stack.enter_context(mock.patch.object(torch._C, name, return_value=0, create=True))
        stack.enter_context(watching.profilers())
        stack.enter_context(mock.patch.object(torch.backends.cuda, "is_built", return_value=True))
        stack.enter_context(mock.patch.object(torch.version, "cuda", torch.version.cuda or "12.8"))
        yield
