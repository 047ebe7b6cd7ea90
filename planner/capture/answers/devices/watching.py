"""What looks at a GPU while a script runs under capture: memory histories, the driver's readings, profilers.

Names as in torch/cuda/__init__.py, torch/cuda/memory.py and torch/cuda/profiler.py (2.13). A build without CUDA has the
functions and not what they call.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.capture.answers.devices.stream import NoStream

ZERO = (
    "temperature", "power_draw", "clock_rate", "memory_usage", "device_memory_used", "get_sync_debug_mode",
    "current_blas_handle",
)  # fmt: skip
NOTHING = (
    "_record_memory_history", "_dump_snapshot", "_save_segment_usage", "_save_memory_usage", "reset_max_memory_cached",
    "set_stream", "set_sync_debug_mode", "_sleep", "check_error", "caching_allocator_delete",
)  # fmt: skip
OTHERWISE: dict[str, Any] = {
    "memory_snapshot": lambda *_, **__: [],
    "_snapshot": lambda *_, **__: {"segments": [], "device_traces": [], "allocator_settings": {}},
    "memory_stats_as_nested_dict": lambda *_: {},
    "host_memory_stats": lambda *_: {},
    "list_gpu_processes": lambda *_: "",
    "can_device_access_peer": lambda *_: True,
    "get_per_process_memory_fraction": lambda *_: 1.0,
    "get_allocator_backend": lambda: "native",
    "cudart": lambda: NoStream(),
    "MemPool": NoStream,
    "use_mem_pool": NoStream,
}
_SHARED_MEMORY = {(7, 0): 96, (7, 5): 64, (8, 0): 164, (8, 6): 100, (8, 7): 164, (8, 9): 100, (12, 0): 100}
"""KiB for a multiprocessor, by compute capability: CUDA C++ Programming Guide, technical specifications."""
_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536}
"""For a multiprocessor, in the same table; 2,048 elsewhere."""


def limits(capability: tuple[int, int]) -> dict[str, Any]:
    """Properties of a device that follow from its compute capability."""
    shared = 1024 * _SHARED_MEMORY.get(capability, 228)
    return {
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": _THREADS.get(capability, 2048),
        "shared_memory_per_block": 48 * 1024,
        "shared_memory_per_block_optin": shared - 1024,
        "shared_memory_per_multiprocessor": shared,
        "uuid": "00000000-0000-0000-0000-000000000000",
    }


@contextlib.contextmanager
def profilers() -> Iterator[None]:
    """Within, marks and profilers of NVIDIA's do nothing."""
    with contextlib.ExitStack() as stack:
        for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
            stack.enter_context(mock.patch.object(torch.cuda.nvtx, name, return_value=0))
        for name in ("start", "stop"):
            stack.enter_context(mock.patch.object(torch.cuda.profiler, name, return_value=None))
        # No figure depends on which it is.
        stack.enter_context(mock.patch.object(torch.cuda.nccl, "version", return_value=(2, 20, 0)))
        yield
