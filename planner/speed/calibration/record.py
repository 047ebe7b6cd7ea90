"""A calibration as a document: what was measured, on which machine, under a digest."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plain.values import dataclass

VERSION = 1
KIND = "gpu-plan-calibration"
MOST_RUNS = 100
"""Compared runs that are kept, the newest."""

Bounds = tuple[float, float, float]
"""Slow, expected and fast: per second, or seconds with the longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What figures hold for. Equal machines give equal figures."""

    device: str
    """Name as the driver or the processor gives it."""
    gpu: str
    """Id of the GPU in the catalog, or `cpu`."""
    devices: int
    driver: str = ""
    power_limit_watts: float | None = None
    processors: int = 0
    """Of the host, that this process may use."""

    def differences(self, other: "Machine") -> tuple[str, ...]:
        """In words, what is another here than there."""
        told = (
            ("device", self.device, other.device),
            ("driver", self.driver, other.driver),
            ("power limit", _watts(self.power_limit_watts), _watts(other.power_limit_watts)),
            ("devices", str(self.devices), str(other.devices)),
            ("processors", str(self.processors), str(other.processors)),
        )
        return tuple(
            f"{what} {mine or 'none'}, here {theirs or 'none'}" for what, mine, theirs in told if mine != theirs
        )


def _watts(value: float | None) -> str:
    return "" if value is None else f"{value:g} W"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Products of one type and about one size: FLOP of one, FLOP/s over layouts and shapes."""

    dtype: str
    flops: float
    rate: Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """Fused attention of one type and pass; what a causal kernel leaves out does not count."""

    dtype: str
    direction: str
    rate: Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One collective of one size among processes of this machine."""

    kind: str
    ranks: int
    num_bytes: int
    seconds: Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A step that ran here, beside what had been expected of it."""

    what: str
    expected_seconds: float
    measured_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Everything measured on one machine."""

    machine: Machine
    made: str
    """ISO date and time."""
    torch: str
    products: tuple[Product, ...]
    attention: tuple[Fused, ...]
    memory: Bounds
    """Bytes per second of operators that only move memory."""
    operator_seconds: Bounds
    """From one operator to the next where the operator itself takes no time."""
    host_copy: Bounds | None = None
    """Bytes per second to the device; None on a CPU."""
    disk_write: float | None = None
    disk_read: float | None = None
    exchanges: tuple[Exchange, ...] = ()
    runs: tuple[Run, ...] = field(default=())

    @property
    def learnt(self) -> float | None:
        """Median of measured over expected in the runs compared; None before there are three."""
        if len(self.runs) < 3:
            return None
        ratios = sorted(run.measured_seconds / run.expected_seconds for run in self.runs)
        return ratios[len(ratios) // 2]


def to_json(record: Calibration) -> str:
    """The document, its digest last."""
    body = {"kind": KIND, "version": VERSION, **asdict(record)}
    return json.dumps({**body, "digest": _digest(body)}, indent=1) + "\n"


def from_json(text: str, where: str) -> Calibration:
    """The record in a document. InputError, one line, for everything that `to_json` did not write."""
    again = "run `plan calibrate` again"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{where} is no calibration: no JSON; {again}") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise InputError(f"{where} is no calibration that `plan calibrate` wrote; {again}")
    if found.get("version") != VERSION:
        raise InputError(f"{where}: a calibration of version {found.get('version')!r}, this is {VERSION}; {again}")
    digest = found.pop("digest", None)
    if digest != _digest(found):
        raise InputError(f"{where} was changed after it was written (its digest does not hold); {again}")
    try:
        return _record(found)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{where} lacks what a calibration holds; {again}") from None


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _record(found: Mapping[str, Any]) -> Calibration:
    copied = found["host_copy"]
    return Calibration(
        machine=Machine(**found["machine"]),
        made=str(found["made"]),
        torch=str(found["torch"]),
        products=tuple(Product(**{**row, "rate": _bounds(row["rate"])}) for row in found["products"]),
        attention=tuple(Fused(**{**row, "rate": _bounds(row["rate"])}) for row in found["attention"]),
        memory=_bounds(found["memory"]),
        operator_seconds=_bounds(found["operator_seconds"]),
        host_copy=None if copied is None else _bounds(copied),
        disk_write=found["disk_write"],
        disk_read=found["disk_read"],
        exchanges=tuple(Exchange(**{**row, "seconds": _bounds(row["seconds"])}) for row in found["exchanges"]),
        runs=tuple(Run(**row) for row in found["runs"]),
    )


def _bounds(values: Sequence[float]) -> Bounds:
    slow, expected, fast = (float(value) for value in values)
    if not all(math.isfinite(value) and value > 0 for value in (slow, expected, fast)):
        raise ValueError("a rate that is no positive number")
    return slow, expected, fast
