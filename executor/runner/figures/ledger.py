"""Optimizer steps and their summary, as the rank's record keeps them. Pure: no clock, no torch."""

import bisect
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpu_plan.executor.records.rank import FIRST_STEPS, LAST_STEPS

MAX_TIMES = 20_000
"""Step times kept for the median; beyond, every second one."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One optimizer step while it can still change; written as `gpu_plan.executor.records.rank.StepRecord`."""

    step: int
    seconds: float = 0.0
    micro_batches: int = 0
    samples: int | None = None
    tokens: int | None = None
    loss: float | None = None
    not_finite: str | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    device_used_bytes: int | None = None
    resident_bytes: int | None = None
    phases: dict[str, int] = field(default_factory=dict)
    _text: str | None = None
    _told: Callable[["Row"], None] | None = None

    def add(self, other: "Row") -> None:
        """Takes in what a further optimizer of the same round did."""
        self.seconds += other.seconds
        self.micro_batches += other.micro_batches
        self.samples = plus(self.samples, other.samples)
        self.tokens = plus(self.tokens, other.tokens)
        self.loss = self.loss if other.loss is None else (self.loss or 0.0) + other.loss
        self.peak_allocated_bytes = most(self.peak_allocated_bytes, other.peak_allocated_bytes)
        self.peak_reserved_bytes = most(self.peak_reserved_bytes, other.peak_reserved_bytes)
        self.device_used_bytes = most(self.device_used_bytes, other.device_used_bytes)
        self.resident_bytes = most(self.resident_bytes, other.resident_bytes)
        widen(self.phases, other.phases)
        self._text = None

    def set_loss(self, loss: float) -> None:
        """The loss, once its value has arrived on the host; JSON has no word for one that is no finite number."""
        finite = math.isfinite(loss)
        self.loss, self._text = (loss if finite and self.not_finite is None else None), None
        if not finite and self.not_finite is None:
            self.not_finite = "nan" if math.isnan(loss) else "inf" if loss > 0 else "-inf"
            if self._told is not None:
                self._told(self)

    def text(self) -> str:
        """JSON, made once for a row that changes no more."""
        if self._text is None:
            self._text = json.dumps({name: getattr(self, name) for name in _FIELDS}, separators=(",", ":"))
        return self._text


_FIELDS = (
    "step",
    "seconds",
    "micro_batches",
    "samples",
    "tokens",
    "loss",
    "not_finite",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "device_used_bytes",
    "resident_bytes",
    "phases",
)


class Ledger:
    """The steps of one attempt."""

    def __init__(self) -> None:
        self.offset = 0
        """Steps of the attempts before."""
        self.count = 0
        """Steps of this attempt."""
        self._first: list[Row] = []
        self._last: deque[Row] = deque(maxlen=LAST_STEPS)
        self._times: list[float] = []
        self._stride, self._skipped = 1, 0
        self._seconds_max = 0.0
        self._not_finite = 0
        self._first_not_finite: int | None = None
        self._totals = Row(step=0)

    @property
    def last(self) -> Row | None:
        """The latest step."""
        return self._last[-1] if self._last else self._first[-1] if self._first else None

    def append(self, row: Row) -> Row:
        """A new step; `row.step` is set here. The step before it can no longer change but for its loss."""
        self._settle()
        self.count += 1
        row.step = self.offset + self.count
        row._told = self._is_not_finite
        (self._first if len(self._first) < FIRST_STEPS else self._last).append(row)
        return row

    def _is_not_finite(self, row: Row) -> None:
        self._not_finite += 1
        if self._first_not_finite is None:
            self._first_not_finite = row.step

    def rows(self) -> Iterator[Row]:
        """The first and the last steps, in order."""
        yield from self._first
        yield from self._last

    def summary(self) -> dict[str, object]:
        """The fields of `gpu_plan.executor.records.rank.StepSummary`."""
        totals, last = Row(step=0), self.last
        totals.add(self._totals)
        times, longest = self._times, self._seconds_max
        if last is not None:
            totals.add(last)
            if self.count > 1:
                longest = max(longest, last.seconds)
                if not times:
                    times = [last.seconds]
        rows = reversed((*self._first, *self._last))
        known = next((row for row in rows if row.loss is not None or row.not_finite is not None), Row(step=0))
        return {
            "steps": self.count,
            "seconds_median": _median(times) if times else None,
            "seconds_max": longest if times else None,
            "tokens": totals.tokens or 0,
            "samples": totals.samples or 0,
            "peak_allocated_bytes": totals.peak_allocated_bytes,
            "peak_reserved_bytes": totals.peak_reserved_bytes,
            "peak_device_used_bytes": totals.device_used_bytes,
            "peak_resident_bytes": totals.resident_bytes,
            "phases": totals.phases,
            "last_loss": known.loss,
            "last_not_finite": known.not_finite,
            "not_finite_steps": self._not_finite,
            "first_not_finite": self._first_not_finite,
        }

    def _settle(self) -> None:
        """Moves the latest step into the totals; the first one's time, with all warming up, does not count."""
        row = self.last
        if row is None:
            return
        self._totals.add(row)
        if self.count == 1:
            return
        self._seconds_max = max(self._seconds_max, row.seconds)
        self._skipped += 1
        if self._skipped >= self._stride:
            self._skipped = 0
            bisect.insort(self._times, row.seconds)
            if len(self._times) > MAX_TIMES:
                del self._times[::2]
                self._stride *= 2


def _median(ordered: list[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def most(one: int | None, other: int | None) -> int | None:
    """The larger of two figures, either of which may be unknown."""
    return other if one is None else one if other is None else max(one, other)


def plus(one: int | None, other: int | None) -> int | None:
    """The sum of two figures, either of which may be unknown."""
    return other if one is None else one if other is None else one + other


def widen(peaks: dict[str, int], others: Mapping[str, int]) -> None:
    """Raises `peaks` to `others` where those are higher."""
    for name, value in others.items():
        peaks[name] = max(peaks.get(name, 0), value)
