"""A step stream by stream, for whoever draws it: out of the trace that `--timeline` writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_SECONDS = 1e-6
_MOST = 8
"""Rows that are drawn; of a deep pipeline the first and the last ranks."""


class LaneSpan(NamedTuple):
    """Something that runs: seconds from the start of the step."""

    name: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One stream, or one rank of a pipeline, with what runs on it in order."""

    name: str
    spans: tuple[LaneSpan, ...]

    @property
    def busy(self) -> float:
        """Seconds in which something runs."""
        return sum(span.seconds for span in self.spans)


def lanes_of(trace: Mapping[str, Any]) -> tuple[Lane, ...]:
    """Of a Chrome trace: spans that follow each other under one name are one. Empty where nothing runs."""
    found: dict[tuple[int, int], list[LaneSpan]] = {}
    threads: dict[tuple[int, int], str] = {}
    for event in trace["traceEvents"]:
        place = (event["pid"], event["tid"])
        if event["ph"] == "X":
            name = event["name"].partition(",")[0].rstrip(" 0123456789")
            found.setdefault(place, []).append(LaneSpan(name, event["ts"] * _SECONDS, event["dur"] * _SECONDS))
        elif event["name"] == "thread_name":
            threads[place] = event["args"]["name"]
    ranks = {pid for pid, _ in found}
    rows = [
        Lane(name=f"stage {place[0]}" if len(ranks) > 1 else threads.get(place, "compute"), spans=_joined(spans))
        for place, spans in sorted(found.items())
    ]
    half = _MOST // 2
    return tuple(rows if len(rows) <= _MOST else rows[:half] + rows[-half:])


def step_seconds(lanes: Sequence[Lane]) -> float:
    """When the last of them ends."""
    return max((lane.spans[-1].start + lane.spans[-1].seconds for lane in lanes), default=0.0)


def cells(lane: Lane, whole: float, count: int) -> tuple[str, ...]:
    """What takes most of each of `count` equal parts of `whole` seconds, by its name; empty where most is idle."""
    width = whole / count
    shares: list[dict[str, float]] = [{} for _ in range(count)]
    for span in lane.spans:
        end = span.start + span.seconds
        for cell in range(int(span.start / width), min(count, int(end / width) + 1)):
            inside = min(end, (cell + 1) * width) - max(span.start, cell * width)
            shares[cell][span.name] = shares[cell].get(span.name, 0.0) + max(0.0, inside)
    return tuple(max(part, key=part.__getitem__) if sum(part.values()) >= width / 2 else "" for part in shares)


def drawable(lane: Lane, whole: float, parts: int = 800) -> tuple[LaneSpan, ...]:
    """Its spans where gaps below one of so many parts of the whole cannot be seen."""
    return _joined(lane.spans, whole / parts)


def _joined(spans: Sequence[LaneSpan], gap: float = _SECONDS) -> tuple[LaneSpan, ...]:
    """In order, those that nearly touch and bear one name as one."""
    joined: list[LaneSpan] = []
    for span in sorted(spans, key=lambda one: one.start):
        last = joined[-1] if joined else None
        if last is not None and last.name == span.name and span.start - (last.start + last.seconds) < gap:
            joined[-1] = LaneSpan(last.name, last.start, span.start + span.seconds - last.start)
        else:
            joined.append(span)
    return tuple(joined)
