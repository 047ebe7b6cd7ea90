"""Devices from budgets, written as accelerate's and transformers' `max_memory` is."""

from collections.abc import Mapping

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.search.device_map.problem import Device, DeviceKind, DeviceName
from gpu_plan.planner.units import parse_bytes


def devices_of(
    budgets: Mapping[DeviceName, int | str | None],
    *,
    memory_bytes_per_s: Mapping[DeviceName, float] | float | None = None,
    link_bytes_per_s: Mapping[DeviceName, float] | float | None = None,
    disk_bytes_per_s: float | None = None,
) -> tuple[Device, ...]:
    """Devices of `{0: "20GiB", 1: "10GiB", "cpu": "64GiB", "disk": None}`: GPUs by index, then `cpu`, then `disk`.

    A size is in bytes or text; None means without limit. Rates are for all GPUs or by device; the CPU's own memory
    rate stands under `cpu`. Raises InputError for a device that accelerate would not know and for a negative size.
    """
    for name in budgets:
        if not (name in ("cpu", "disk") or (isinstance(name, int) and not isinstance(name, bool) and name >= 0)):
            raise InputError(f"device map: device {name!r} is not a GPU's index, 'cpu' or 'disk'")
    gpus = sorted(name for name in budgets if isinstance(name, int))
    ordered: list[DeviceName] = [*gpus, *(name for name in ("cpu", "disk") if name in budgets)]
    made = []
    for name in ordered:
        kind: DeviceKind = "gpu" if isinstance(name, int) else "cpu" if name == "cpu" else "disk"
        size = budgets[name]
        made.append(
            Device(
                name=name,
                kind=kind,
                free_bytes=parse_bytes(size) if isinstance(size, str) else size,
                memory_bytes_per_s=_rate(memory_bytes_per_s, name, kind == "gpu"),
                link_bytes_per_s=disk_bytes_per_s if kind == "disk" else _rate(link_bytes_per_s, name, kind == "gpu"),
            )
        )
    return tuple(made)


def _rate(rates: Mapping[DeviceName, float] | float | None, name: DeviceName, is_gpu: bool) -> float | None:
    if isinstance(rates, Mapping):
        return rates.get(name)
    return rates if is_gpu else None
