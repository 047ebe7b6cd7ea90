"""What a script that asks `torch.accelerator`, the name of whatever device there is, is told: the planned GPU.

Names as in torch/accelerator/__init__.py and torch/accelerator/memory.py.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.capture.answers.devices.stream import NoStream
from gpu_plan.planner.capture.request import PlannedDevice

_NOTHING = (
    "synchronize", "empty_cache", "empty_host_cache", "set_device_index", "set_device_idx", "set_stream",
    "reset_peak_memory_stats", "reset_accumulated_memory_stats",
)  # fmt: skip
_ZERO = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "current_device_index",
    "current_device_idx",
)  # fmt: skip


@contextlib.contextmanager
def accelerator_answers(device: PlannedDevice, seen: int) -> Iterator[None]:
    """Within, `torch.accelerator` answers as on one of the planned GPUs, `seen` of which are seen.

    A CPU cluster leaves it as it is.
    """
    if device.capability_major is None:
        yield
        return
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: seen,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_stream": lambda *_: NoStream(),
        "device_index": NoStream,
        "memory_stats": lambda *_: OrderedDict(),
        "get_memory_info": lambda *_: (device.total_bytes, device.total_bytes),
    }
    answers |= {name: lambda *_, **__: None for name in _NOTHING}
    answers |= {name: lambda *_, **__: 0 for name in _ZERO}
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.accelerator, name, answer))
        yield
