"""What this machine has, without importing torch: nvidia-smi, rocm-smi, else the CPU."""

import csv
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_plan.planner.errors import PreflightError
from gpu_plan.planner.hardware.catalog import load_gpus, match_gpu
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.gpu import Fact, Gpu
from gpu_plan.planner.hardware.ram import machine_ram_bytes
from gpu_plan.planner.hardware.user_gpus import parse_user_gpu
from gpu_plan.planner.units import MIB

_FIELDS = ("index", "uuid", "name", "memory.total", "compute_cap")
_SMI = ("nvidia-smi", "--format=csv,noheader,nounits")
_ROCM = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")
_TIMEOUT_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as the vendor's tool prints it."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    compute_capability: str | None
    tool: str


def parse_nvidia_smi(text: str) -> list[Device]:
    """Devices of `nvidia-smi --query-gpu=index,uuid,name,memory.total[,compute_cap]` as bare CSV.

    Memory is in MiB there. Lines that are not devices (notices, errors) are left out.
    """
    devices = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        fields = [field.strip() for field in row]
        if len(fields) < 4 or not _is_number(fields[0]) or not _is_number(fields[3]):
            continue
        capability = fields[4] if len(fields) > 4 and "." in fields[4] else None
        devices.append(
            Device(
                index=int(fields[0]),
                uuid=fields[1],
                name=fields[2],
                memory_bytes=int(fields[3]) * MIB,
                compute_capability=capability,
                tool="nvidia-smi",
            )
        )
    return devices


def parse_rocm_smi(text: str) -> list[Device]:
    """Devices of `rocm-smi --showproductname --showmeminfo vram --json`; memory is in bytes there."""
    try:
        cards = json.loads(text)
    except (ValueError, RecursionError):
        return []
    devices = []
    for card, fields in sorted(cards.items()) if isinstance(cards, dict) else []:
        if not isinstance(fields, dict) or not _is_number(card.removeprefix("card")):
            continue
        by_key = {str(key).lower(): str(value) for key, value in fields.items()}
        memory = by_key.get("vram total memory (b)", "")
        name = by_key.get("card series") or by_key.get("card model") or ""
        if name and _is_number(memory):
            devices.append(
                Device(
                    index=int(card.removeprefix("card")),
                    uuid=by_key.get("unique id", ""),
                    name=name.removesuffix(" OAM"),
                    memory_bytes=int(memory),
                    compute_capability=None,
                    tool="rocm-smi",
                )
            )
    return sorted(devices, key=lambda device: device.index)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def visible_devices(devices: Sequence[Device], visible: str | None) -> list[Device]:
    """Those that CUDA_VISIBLE_DEVICES leaves; as in CUDA, the first entry that names none ends the list."""
    if visible is None:
        return list(devices)
    kept: list[Device] = []
    for entry in (part.strip() for part in visible.split(",")):
        found = [
            device
            for device in devices
            if (_is_number(entry) and device.index == int(entry)) or (len(entry) > 4 and device.uuid.startswith(entry))
        ]
        if len(found) != 1:
            break
        kept += found
    return kept


def gpu_of(device: Device) -> Gpu:
    """The known GPU with the memory that the tool prints, or one made of the print alone."""
    source = f"{device.tool} on this machine"
    known = match_gpu(device.name)
    if known is not None and known.usable_bytes is not None and device.memory_bytes >= known.usable_bytes:
        return known
    printed = Fact(value=device.memory_bytes, source=source, kind="measured_print", note=device.tool)
    if known is None:
        table: dict[str, object] = {"memory": device.memory_bytes, "vendor": _vendor(device)}
        if device.compute_capability:
            table["compute_capability"] = device.compute_capability
        known = parse_user_gpu(device.name, table)
    return replace(
        known,
        usable_bytes=device.memory_bytes,
        usable_basis="nvidia-smi" if device.tool == "nvidia-smi" else "vendor tool",
        facts={**known.facts, "usable_bytes": printed},
    )


def _vendor(device: Device) -> str:
    return "nvidia" if device.tool == "nvidia-smi" else "amd"


def cluster_of(devices: Sequence[Device], ram_bytes: int) -> Cluster:
    """One node with these devices, or one CPU process without any. PreflightError for mixed devices."""
    if not devices:
        return Cluster(gpu=load_gpus()["cpu"], nodes=1, gpus_per_node=1, host_ram_bytes=ram_bytes)
    kinds = sorted({device.name for device in devices})
    if len(kinds) > 1:
        raise PreflightError(
            f"this machine has different GPUs ({', '.join(kinds)}): choose equal ones with "
            "CUDA_VISIBLE_DEVICES, or name them with --gpus"
        )
    smallest = min(devices, key=lambda device: device.memory_bytes)
    return Cluster(gpu=gpu_of(smallest), nodes=1, gpus_per_node=len(devices), host_ram_bytes=ram_bytes)


def _run(command: Sequence[str]) -> str | None:
    """The tool's output, or None when it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _devices() -> list[Device]:
    # Drivers before 470 do not know compute_cap and refuse the whole query for it.
    for fields in (_FIELDS, _FIELDS[:-1]):
        text = _run([*_SMI, f"--query-gpu={','.join(fields)}"])
        if text is not None:
            return visible_devices(parse_nvidia_smi(text), os.environ.get("CUDA_VISIBLE_DEVICES"))
    text = _run(_ROCM)
    return [] if text is None else visible_devices(parse_rocm_smi(text), os.environ.get("HIP_VISIBLE_DEVICES"))


def detect_cluster() -> Cluster:
    """This machine: its visible GPUs, else one CPU process with the RAM it may use."""
    return cluster_of(_devices(), machine_ram_bytes())
