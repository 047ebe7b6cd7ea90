"""Looks at the GPUs of this machine through the vendor's tool (I/O)."""

import csv
import os
import subprocess
from pathlib import Path

from gpu_plan.executor.doctor.machine.facts import GpuFacts
from gpu_plan.planner.errors import PreflightError
from gpu_plan.planner.units import MIB

_SMI = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version", "compute_mode", "mig.mode.current")
_SMI_SECONDS = 20


def parse_smi(text: str) -> tuple[GpuFacts, ...]:
    """GPUs of `nvidia-smi --query-gpu=index,uuid,name,memory.total,memory.used,driver_version,compute_mode,mig...`.

    Bare CSV; memory in MiB. Lines that are no GPUs are left out; what a tool does not support is None.
    """
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        fields = [field.strip() for field in row]
        if len(fields) != len(_SMI) or not fields[0].isdigit() or not fields[3].isdigit():
            continue
        found.append(
            GpuFacts(
                index=int(fields[0]),
                name=fields[2],
                total_bytes=int(fields[3]) * MIB,
                used_bytes=int(fields[4]) * MIB if fields[4].isdigit() else None,
                driver=_told(fields[5]),
                compute_mode=_told(fields[6]),
                mig=_told(fields[7]),
            )
        )
    return tuple(found)


def _told(field: str) -> str | None:
    return None if not field or field.startswith("[") else field


def visible_gpus() -> tuple[GpuFacts, ...] | None:
    """GPUs as nvidia-smi shows them; those of other vendors as the planner detects them."""
    command = ("nvidia-smi", "--format=csv,noheader,nounits", f"--query-gpu={','.join(_SMI)}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SMI_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        done = None
    if done is not None and done.returncode == 0:
        return _visible(parse_smi(done.stdout), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists():
        return _of_planner()
    return ()


def _visible(gpus: tuple[GpuFacts, ...], chosen: str | None) -> tuple[GpuFacts, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves, where it names them by number."""
    if chosen is None:
        return gpus
    numbers = [part.strip() for part in chosen.split(",")]
    if not all(part.isdigit() for part in numbers if part):
        return gpus if not chosen.strip().startswith("-") else ()
    return tuple(gpu for gpu in gpus if str(gpu.index) in numbers)


def _of_planner() -> tuple[GpuFacts, ...] | None:
    from gpu_plan.planner.hardware.detect import detect_cluster

    try:
        cluster = detect_cluster()
    except PreflightError:
        return None
    if cluster.gpu.is_cpu or cluster.gpu.usable_bytes is None:
        return None
    each = GpuFacts(index=0, name=cluster.gpu.name, total_bytes=cluster.gpu.usable_bytes)
    return tuple(each for _ in range(cluster.gpus_per_node))
