"""A test's figures as they travel from the process that ran it to the one that reports."""

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_plan.planner.capture.block.result import BlockMemory
    from gpu_plan.planner.memory.profile import StandingTensor

_KEPT = 12
_INDEX = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Equal tensors at the peak, those of repeated blocks together."""

    nbytes: int
    count: int
    category: str
    module: str
    """Or the name of the parameter; `*` stands for the index of repeated blocks."""
    operator: str
    shape: str
    origin: str
    """`model.py:31`, relative to pytest's rootdir; empty where no line of the project made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One block; sizes in bytes."""

    gpu: str
    capacity_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    device_used_bytes: int
    fits: bool
    phase_of_peak: str
    at_peak: dict[str, int]
    phase_peaks: dict[str, int]
    largest: tuple[Standing, ...]
    host_reads: tuple[str, ...]
    limit_bytes: int | None = None
    limit_of: str = "allocated"

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def bytes_of(self, kind: str) -> int:
        """`allocated`, `reserved` or `device`."""
        return {
            "allocated": self.peak_allocated_bytes,
            "reserved": self.peak_reserved_bytes,
            "device": self.device_used_bytes,
        }[kind]

    @property
    def exceeds(self) -> bool:
        return self.limit_bytes is not None and self.bytes_of(self.limit_of) > self.limit_bytes


def from_json(text: str) -> Measured:
    """What `to_json` wrote."""
    values: dict[str, Any] = json.loads(text)
    largest = tuple(Standing(**standing) for standing in values.pop("largest"))
    return Measured(largest=largest, host_reads=tuple(values.pop("host_reads")), **values)


def measured(memory: "BlockMemory", limit_bytes: int | None, limit_of: str) -> Measured:
    """The figures that are shown."""
    return Measured(
        gpu=memory.gpu,
        capacity_bytes=memory.capacity_bytes,
        peak_allocated_bytes=memory.peak_allocated_bytes,
        peak_reserved_bytes=memory.peak_reserved_bytes,
        device_used_bytes=memory.device_used_bytes,
        fits=memory.fits,
        phase_of_peak=memory.phase_of_peak,
        at_peak={name: size for name, size in memory.at_peak.items() if size},
        phase_peaks=dict(memory.phase_peaks),
        largest=grouped(memory.tensors)[:_KEPT],
        host_reads=memory.facts.host_reads,
        limit_bytes=limit_bytes,
        limit_of=limit_of,
    )


def grouped(tensors: "Sequence[StandingTensor]") -> tuple[Standing, ...]:
    """Tensors that differ by the index of their block alone, summed; largest sum first."""
    sums: dict[tuple[str, str, str, str, str], list[int]] = {}
    for tensor in tensors:
        module = _INDEX.sub("*", tensor.module)
        key = (str(tensor.category), module, tensor.operator, tensor.shape, tensor.origin)
        entry = sums.setdefault(key, [0, 0])
        entry[0] += tensor.nbytes
        entry[1] += 1
    found = [
        Standing(
            nbytes=total, count=count, category=key[0], module=key[1], operator=key[2], shape=key[3], origin=key[4]
        )
        for key, (total, count) in sums.items()
    ]
    return tuple(sorted(found, key=lambda standing: -standing.nbytes))
