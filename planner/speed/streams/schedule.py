"""When each part of a phase runs: computation in slices, and transfers on streams of their own beside it.

A slice waits for what it computes with, and what it makes is sent once it has ended. What comes next is asked for when
a slice begins, one slice ahead (torch _fsdp_param_group.py: _prefetch_unshard; DeepSpeed's prefetch is as far in
effect, its bucket being a few layers). One stream does one thing at a time, in order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Stream = Literal["compute", "collectives", "between nodes", "to device", "to host"]
STREAMS: tuple[Stream, ...] = ("compute", "collectives", "between nodes", "to device", "to host")


@dataclass(frozen=True, slots=True)
class Task:
    """One transfer."""

    stream: Stream
    seconds: float
    name: str


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a phase's computation: what it waits for, and what is sent when it is done, one after the other."""

    seconds: float
    before: tuple[Task, ...] = ()
    after: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """Something that ran: seconds from the start of its phase or step."""

    stream: Stream
    name: str
    start: float
    seconds: float

    def moved(self, seconds: float) -> "Span":
        """The same, later."""
        return Span(self.stream, self.name, self.start + seconds, self.seconds)


@dataclass(slots=True)
class _Clock:
    """When each stream is free again."""

    free: dict[Stream, float]

    def run(self, task: Task, ready: float) -> Span:
        start = max(self.free[task.stream], ready)
        self.free[task.stream] = start + task.seconds
        return Span(task.stream, task.name, start, task.seconds)


def phase_seconds(slices: Sequence[Slice]) -> float:
    """Seconds until everything has run.

    Equal slices in a row are run until one moves every clock by the same: the rest of the row does so too.
    """
    clock = _Clock(dict.fromkeys(STREAMS, 0.0))
    ready, at, count = 0.0, 0, len(slices)
    ready = _gathered(clock, slices[0], 0.0) if slices else 0.0
    last: tuple[float, ...] = ()
    while at < count:
        ready = _one(clock, slices, at, ready)
        now = (ready, *clock.free.values())
        beat = _beat(now, last) if at and slices[at - 1] is slices[at] else None
        if beat is not None:
            repeats = _repeats(slices, at)
            if repeats > 1:
                for stream in clock.free:
                    clock.free[stream] += beat * (repeats - 1) if clock.free[stream] else 0.0
                ready += beat * (repeats - 1)
                at += repeats - 1
        last, at = now, at + 1
    return max(clock.free.values())


def _gathered(clock: _Clock, part: Slice, asked: float) -> float:
    """When what a slice waits for is there, asked for at `asked`."""
    ready = asked
    for task in part.before:
        ready = _end(clock.run(task, ready))
    return ready


def _one(clock: _Clock, slices: Sequence[Slice], at: int, ready: float) -> float:
    """Runs one slice and what follows it; gives when what the next one waits for is there."""
    part = slices[at]
    begun = max(clock.free["compute"], ready)
    clock.free["compute"] = begun + part.seconds
    following = _gathered(clock, slices[at + 1], begun) if at + 1 < len(slices) else ready
    sent = clock.free["compute"]
    for task in part.after:
        sent = _end(clock.run(task, sent))
    return following


def _repeats(slices: Sequence[Slice], at: int) -> int:
    """How many slices from `at` on are the same object, and their next one too."""
    end = at + 1
    while end < len(slices) and slices[end] is slices[at]:
        end += 1
    return end - at - 1


def _beat(now: tuple[float, ...], last: tuple[float, ...]) -> float | None:
    """By how much every clock in use has moved on; None where they have not moved alike, so that more may change."""
    steps = [a - b for a, b in zip(now, last, strict=True) if a]
    if not steps or max(steps) - min(steps) > 1e-9 * max(steps):
        return None
    return steps[0]


def _end(span: Span) -> float:
    return span.start + span.seconds


def phase_spans(slices: Sequence[Slice], name: str) -> Iterator[Span]:
    """Everything that runs, slice by slice, as `phase_seconds` counts it."""
    clock = _Clock(dict.fromkeys(STREAMS, 0.0))
    ready = 0.0
    if slices:
        for task in slices[0].before:
            span = clock.run(task, ready)
            ready = _end(span)
            yield span
    for at, part in enumerate(slices):
        begun = max(clock.free["compute"], ready)
        clock.free["compute"] = begun + part.seconds
        yield Span("compute", name, begun, part.seconds)
        ready = begun
        for task in slices[at + 1].before if at + 1 < len(slices) else ():
            span = clock.run(task, ready)
            ready = _end(span)
            yield span
        sent = clock.free["compute"]
        for task in part.after:
            span = clock.run(task, sent)
            sent = _end(span)
            yield span
