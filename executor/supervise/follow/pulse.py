"""The few values of a rank's record that the supervisor follows while it runs (I/O)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.plan.codec import MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """One look at `rank-N.json`, without decoding its hundreds of steps into records."""

    rank: int
    pid: int
    status: str
    started: float
    updated: float
    """Seconds since the epoch."""
    steps: int = 0
    """Optimizer steps of this attempt."""
    last_step: int | None = None
    """The latest one's number over the whole job."""
    step_seconds: float | None = None
    """Median so far."""
    loss: float | None = None
    """NaN or infinite where it is that."""
    not_finite: str | None = None
    """`nan`, `inf` or `-inf`: what the loss first turned into."""
    first_not_finite: int | None = None
    """The step at which it did."""
    memory_bytes: int | None = None
    """Device memory in use, else peak allocated, else resident."""
    memory_kind: str = ""
    tokens: int = 0
    exit_code: int | None = None
    moments: Mapping[str, float] = field(default_factory=dict)
    """As in the record."""
    host: str = ""
    """Where its process is: on another host its pid is another process here."""

    @property
    def runs(self) -> bool:
        """Whether, by its record, the rank still runs."""
        return self.status in ("starting", "running")

    @property
    def failed(self) -> bool:
        """Whether, by its record, the rank ended otherwise than well."""
        return self.status in ("oom", "exception", "peer_failure") or (self.status == "exit" and self.exit_code != 0)


class Pulses:
    """Looks at the records of one folder; a record that has not changed is not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Path, tuple[int, int]] = {}
        self._latest: dict[Path, Pulse] = {}

    def look(self) -> tuple[tuple[Pulse, ...], bool]:
        """The latest pulse of every rank, in rank order, and whether any is new."""
        changed = False
        for path in self._folder.glob("rank-*.json"):
            try:
                status = path.stat()
                mark = (status.st_mtime_ns, status.st_ino)
                if self._seen.get(path) == mark:
                    continue
                pulse = parse_pulse(read_bytes(path, MAX_BYTES))
            except OSError:
                continue
            if pulse is not None:
                self._seen[path], self._latest[path], changed = mark, pulse, True
        return tuple(sorted(self._latest.values(), key=lambda pulse: pulse.rank)), changed


def parse_pulse(content: bytes) -> Pulse | None:
    """The pulse in a record's bytes; None where they are no record."""
    try:
        value = json.loads(content)
        summary, steps = value.get("summary") or {}, value.get("steps") or []
        last = steps[-1] if steps else {}
        size, kind = _memory(summary)
        return Pulse(
            rank=int(value["rank"]),
            pid=int(value["pid"]),
            status=str(value["status"]),
            started=float(value["started"]),
            updated=float(value["updated"]),
            steps=int(summary.get("steps") or 0),
            last_step=last.get("step"),
            step_seconds=summary.get("seconds_median"),
            loss=_loss(summary),
            not_finite=next((step["not_finite"] for step in steps if step.get("not_finite")), None),
            first_not_finite=summary.get("first_not_finite"),
            memory_bytes=size,
            memory_kind=kind,
            tokens=int(summary.get("tokens") or 0),
            exit_code=value.get("exit_code"),
            host=str(value.get("host") or ""),
            moments={str(name): float(at) for name, at in (value.get("moments") or {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _loss(summary: Mapping[str, object]) -> float | None:
    odd, loss = summary.get("last_not_finite"), summary.get("last_loss")
    return float(str(odd)) if odd is not None else loss if isinstance(loss, (int, float)) else None


def _memory(summary: Mapping[str, object]) -> tuple[int | None, str]:
    for key, kind in (
        ("peak_device_used_bytes", "in use"),
        ("peak_allocated_bytes", "allocated"),
        ("peak_resident_bytes", "resident"),
    ):
        size = summary.get(key)
        if isinstance(size, int):
            return size, kind
    return None, ""
