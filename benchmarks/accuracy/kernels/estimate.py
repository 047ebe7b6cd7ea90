"""Single kernels against the peaks that Liger-Kernel's own benchmarks measured on an A100.

Each kernel runs on the meta device under the recorder that every estimate rests on, as linkedin/Liger-Kernel
benchmark/scripts/benchmark_*.py run it. Their `_test_memory` takes the median of ten iterations, gradients of those
before still there: that of the third stands for them. In Liger's norm of that time the sum over tokens takes a staging
buffer (`reduce`), which plans do not count yet. Nothing is fitted.
"""

import contextlib
from typing import Any

import torch

from benchmarks.accuracy.kernels.cases import Component, component_of
from benchmarks.accuracy.row import Row, SetAside, identity, number, software_group, text
from gpu_plan.planner.strategy.base import workspace_bytes
from gpu_plan.planner.trace.events import Kind, Mark
from gpu_plan.planner.trace.inputs.known import KnownValues
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.recording.collection import no_collection
from gpu_plan.planner.trace.recording.functions import DeviceFunctions, autocast_visible, python_wrappers_open
from gpu_plan.planner.trace.recording.host_reads import HostReads
from gpu_plan.planner.trace.recording.modules import ModuleTracker
from gpu_plan.planner.trace.recording.recorder import Recorder
from gpu_plan.planner.units import GIB

_A100 = CudaProfile(capability=(8, 0), sm_count=108)
_BLOCK = 512
_ITERATIONS = 3


def peak_bytes(component: Component) -> int:
    """Peak allocated in the last of some iterations, tensors of the benchmark's set-up included."""
    tracker = ModuleTracker(component.module)
    recorder = Recorder(tracker, _A100, HostReads(KnownValues()))
    recorder.know(component.tensors)
    with contextlib.ExitStack() as stack:
        stack.enter_context(no_collection())
        stack.enter_context(python_wrappers_open())
        stack.enter_context(autocast_visible(None))
        stack.enter_context(tracker)
        stack.enter_context(recorder)
        stack.enter_context(DeviceFunctions(_A100, None, False))
        for _ in range(_ITERATIONS):
            recorder.mark(Mark.FORWARD)
            component.run(tracker)
    raw = recorder.finish()
    standing = sum(_block(tensor.untyped_storage().nbytes()) for tensor in _distinct(component.tensors))
    standing += component.workspaces * _block(workspace_bytes(_A100.capability))
    live = peak = 0
    for kind, subject in zip(raw.kind, raw.subject, strict=True):
        if kind == Kind.MARK:
            peak = live
        elif kind in (Kind.ALLOC, Kind.FREE):
            live += (1 if kind == Kind.ALLOC else -1) * _block(raw.tensors[subject].nbytes)
            peak = max(peak, live)
    return standing + peak


def _block(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _distinct(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return list({tensor.untyped_storage()._cdata: tensor for tensor in tensors}.values())


class KernelLines:
    """Lines of the table."""

    def line(self, row: Row) -> dict[str, Any]:
        """A row's figures; errors are estimate / measured - 1. SetAside when the row cannot be scored."""
        printed = number(row, "measured.peak_allocated_gib")
        if printed is None:
            raise SetAside("nothing measured")
        component = component_of(row)
        measured, found = round(printed * GIB), peak_bytes(component)
        return {
            "kind": "kernels",
            "id": identity(row),
            "group": kernel_group(row),
            "source": text(row, "source"),
            "kernel": text(row, "kernel"),
            "provider": text(row, "provider"),
            "mode": text(row, "mode"),
            "size": f"{text(row, 'x_name')}={number(row, 'x_value') or 0:.0f}",
            "peak_allocated": found,
            "measured_peak_allocated": measured,
            "peak_allocated_error": found / measured - 1,
        }


def kernel_group(row: Row) -> str:
    """Rows of one group are of one kernel by one library."""
    return ", ".join([software_group(row), text(row, "kernel") or "kernel", text(row, "provider") or "provider"])
