"""Reads memory: CUDA's caching allocator and driver, or on a CPU the allocator's own events.

Names and meanings as in torch 2.13 torch/cuda/memory.py: memory_stats, mem_get_info, _record_memory_history, _snapshot.
"""

import contextlib
import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

_FRAMES = 8
_SKIPPED = (
    "torch/nn/modules/module.py",
    "torch/autograd",
    "contextlib.py",
    "torch/utils/_contextlib.py",
    "<string>",
)

Figures = dict[str, int | None]

_STATS = {
    "allocated": "allocated_bytes.all.peak",
    "reserved": "reserved_bytes.all.peak",
    "requested": "requested_bytes.all.peak",
    "active": "active_bytes.all.peak",
    "inactive_split": "inactive_split_bytes.all.peak",
}


class CudaMemory:
    """One CUDA device. Counters belong to the host side of the allocator: reading them needs no synchronisation."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)

    def begin(self) -> None:
        """Peaks start from what is allocated now."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def end(self) -> Figures:
        """Peaks since `begin`, bytes."""
        stats = torch.cuda.memory_stats(self.device)
        return {name: int(stats[key]) for name, key in _STATS.items() if key in stats}

    def now(self) -> Figures:
        """Current figures, bytes; `device_in_use` counts every process on the device."""
        free, total = torch.cuda.mem_get_info(self.device)
        stats = torch.cuda.memory_stats(self.device)
        reserved = torch.cuda.memory_reserved(self.device)
        return {
            "allocated": torch.cuda.memory_allocated(self.device),
            "requested": int(stats.get("requested_bytes.all.current", 0)),
            "reserved": reserved,
            "device_in_use": total - free,
            "outside_allocator": total - free - reserved,
        }

    def counts(self) -> Figures:
        """How often the allocator gave back cached memory, failed, and asked the driver, since `fresh`."""
        stats = torch.cuda.memory_stats(self.device)
        names = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")
        return {name: int(stats[name]) for name in names if name in stats}

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def fresh(self) -> None:
        """As in a new process, but for the context: nothing cached, no library workspace."""
        gc.collect()
        self.synchronize()
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        torch.cuda.empty_cache()
        torch.cuda.reset_accumulated_memory_stats(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)

    def settle(self) -> None:
        """Gives back what building left in the cache: reserved then counts the step's own segments."""
        gc.collect()
        torch.cuda.empty_cache()

    @contextlib.contextmanager
    def history(self, path: Path | None) -> Iterator[None]:
        """Within, allocations are recorded; then the snapshot is written to `path`, frames shortened."""
        if path is None:
            yield
            return
        record: Any = torch.cuda.memory._record_memory_history
        wanted = {"context": "alloc", "stacks": "python", "max_entries": 200_000}
        try:
            record("all", **wanted, clear_history=True)
        except TypeError:  # an older torch
            record("all", **wanted)
        try:
            yield
            taken: Any = torch.cuda.memory._snapshot(self.device)
        finally:
            record(None)
        path.write_bytes(pickle.dumps(trimmed(taken)))


class CpuMemory:
    """The CPU: tensors' bytes from the profiler's allocation events; no caching allocator, no driver."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._profiler: Any = None
        self._allocated = 0

    def standing(self, nbytes: int) -> None:
        """Tells what was allocated before the first `begin`."""
        self._allocated = nbytes

    def begin(self) -> None:
        self._profiler = torch.autograd.profiler.profile(profile_memory=True, use_cpu=True)
        self._profiler.__enter__()

    def end(self) -> Figures:
        profiler, self._profiler = self._profiler, None
        profiler.__exit__(None, None, None)
        events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
        peak = self._allocated
        for event in sorted(events, key=lambda event: event.start_ns()):
            self._allocated += event.nbytes()
            peak = max(peak, self._allocated)
        return {"allocated": peak}

    def now(self) -> Figures:
        return {"allocated": self._allocated}

    def counts(self) -> Figures:
        return {}

    def synchronize(self) -> None:
        return None

    def fresh(self) -> None:
        gc.collect()
        if self._profiler is not None:  # a case failed between begin and end
            self.end()
        self._allocated = 0

    def settle(self) -> None:
        gc.collect()

    @contextlib.contextmanager
    def history(self, path: Path | None) -> Iterator[None]:
        """A CPU has no such history; nothing is written."""
        yield


Memory = CudaMemory | CpuMemory


def trimmed(snapshot: dict[str, Any]) -> dict[str, Any]:
    """The snapshot with a few telling Python frames an event, equal stacks stored once, no tensor left out."""
    kept: dict[tuple[tuple[str, int, str], ...], list[dict[str, Any]]] = {}

    def short(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
        telling = [f for f in frames if not any(part in f["filename"] for part in _SKIPPED)][:_FRAMES]
        key = tuple((_tail(f["filename"]), int(f["line"]), str(f["name"])) for f in telling)
        if key not in kept:
            kept[key] = [{"filename": name, "line": line, "name": function} for name, line, function in key]
        return kept[key]

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: short(item) if key == "frames" else walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list) else value

    result: dict[str, Any] = walk(snapshot)
    return result


def _tail(filename: str) -> str:
    """A file's path from its package on: no home folder in published data."""
    for mark in ("/site-packages/", "/dist-packages/", "/benchmarks/"):
        if mark in filename:
            return filename.rpartition(mark)[2]
    return filename.rpartition("/")[2]


def context_probe(memory: CudaMemory) -> dict[str, Any]:
    """Driver bytes and library workspaces of a new process, step by step. Must run before any other CUDA work."""
    torch.cuda.init()
    found: dict[str, Any] = {"after_init": memory.now()}
    _first_products(memory, found)
    memory.synchronize()
    found["after_backward"] = memory.now()
    return found


def _first_products(memory: CudaMemory, found: dict[str, Any]) -> None:
    """The first matrix products of this thread, of autograd's thread, and with a bias (cuBLASLt)."""
    a = torch.ones(256, 256, device=memory.device, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.ones(256, device=memory.device, dtype=torch.bfloat16)
    found["after_first_tensor"] = memory.now()
    found["workspace_forward_bytes"], out = _added(lambda: a @ a)
    found["after_first_gemm"] = memory.now()
    loss = out.float().sum()
    # The gradient of `a` stays; what else stays is the workspace of autograd's thread.
    found["workspace_backward_bytes"], _ = _added(loss.backward, keeps=a.numel() * 2)
    plain = a.detach()
    found["workspace_addmm_bytes"], _ = _added(lambda: torch.nn.functional.linear(plain, plain, bias))


def _added(action: Any, keeps: int | None = None) -> tuple[int, Any]:
    """Bytes that stay allocated after `action` beyond its result (or beyond `keeps`), and the result."""
    before = torch.cuda.memory_allocated()
    result = action()
    after = torch.cuda.memory_allocated()
    own = keeps if keeps is not None else result.untyped_storage().nbytes()
    return after - before - own, result
