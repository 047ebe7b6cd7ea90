"""Single kernels against the peaks that Liger-Kernel's own benchmarks measured on an A100.

    .venv/bin/python -m benchmarks.component_memory

reads benchmarks/data/published_components.json (facts, each with its source), runs each kernel on the meta device under
the recorder that every estimate rests on, as linkedin/Liger-Kernel benchmark/scripts/benchmark_*.py run it, and writes
benchmarks/results/component_memory.json and .md. Their `_test_memory` takes the median of ten iterations, gradients of
those before still there: that of the third stands for them. Nothing is fitted.
"""

import contextlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from benchmarks.component_cases import Component, component_of
from benchmarks.published_rows import Row
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

HERE = Path(__file__).parent
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


def run(rows: list[Row]) -> Row:
    """Every row: compared, or set aside with the reason."""
    lines, aside = [], Counter[str]()
    for row in rows:
        component = component_of(row)
        if isinstance(component, str):
            aside[f"{row['group']}, {row['kernel']}: {component}"] += 1
            continue
        measured, found = round(row["measured"]["peak_allocated_gib"] * GIB), peak_bytes(component)
        lines.append(
            {
                "id": row["id"],
                "source": row["source"],
                "kernel": row["kernel"],
                "provider": row["provider"],
                "mode": row["mode"],
                "size": f"{row['x_name']}={row['x_value']:.0f}",
                "measured": measured,
                "estimate": found,
                "error": found / measured - 1,
            }
        )
    return {"compared": lines, "set_aside": dict(aside)}


def markdown(found: Row) -> str:
    """Errors by kernel, then row by row."""
    head = ("row", "kernel", "provider", "mode", "size", "measured", "estimate", "error")
    lines = [
        "# Single kernels against Liger-Kernel's published memory benchmarks\n",
        "Peak of `torch.cuda.max_memory_allocated` in MiB on an A100; errors are estimate / measured - 1. Written by",
        "`python -m benchmarks.component_memory`; no GPU takes part. In Liger's norm of that time the sum over tokens",
        "takes a staging buffer (`component_reduce`), which plans do not count yet.\n",
        "| kernel | provider | rows | median | worst |",
        "|" + "---|" * 5,
    ]
    kinds = dict.fromkeys((line["kernel"], line["provider"]) for line in found["compared"])
    for kernel, provider in kinds:
        errors = sorted(
            abs(line["error"]) for line in found["compared"] if (line["kernel"], line["provider"]) == (kernel, provider)
        )
        middle = len(errors) // 2
        median = errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2
        lines.append(f"| {kernel} | {provider} | {len(errors)} | {100 * median:.3f} % | {100 * errors[-1]:.3f} % |")
    lines += ["", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for line in found["compared"]:
        words = (line["id"], line["kernel"], line["provider"], line["mode"], line["size"])
        figures = (
            f"{line['measured'] / 2**20:.2f}",
            f"{line['estimate'] / 2**20:.2f}",
            f"{100 * line['error']:+.3f} %",
        )
        cells = (*words, *figures)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Set aside:\n", *(f"- {reason}: {count} rows" for reason, count in found["set_aside"].items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes both result files."""
    rows: list[Row] = json.loads((HERE / "data" / "published_components.json").read_text())["rows"]
    found: Any = run(rows)
    (HERE / "results" / "component_memory.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "results" / "component_memory.md").write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
