"""When each part of a phase runs: computation in slices, and transfers on streams of their own beside it.

A slice waits for what it computes with, and what it makes is sent once it has ended. What comes next is asked for when
a slice begins, one slice ahead (torch _fsdp_param_group.py: _prefetch_unshard; DeepSpeed's prefetch is as far in
effect, its bucket being a few layers). One stream does one thing at a time, in order.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

Stream = Literal["compute", "collectives", "between nodes", "to device", "to host"]
STREAMS: tuple[Stream, ...] = ("compute", "collectives", "between nodes", "to device", "to host")


class Task(NamedTuple):
    """One transfer."""

    stream: Stream
    seconds: float
    name: str


class Slice(NamedTuple):
    """A part of a phase's computation: what it waits for, and what is sent when it is done, one after the other."""

    seconds: float
    before: tuple[Task, ...] = ()
    after: tuple[Task, ...] = ()


class Span(NamedTuple):
    """Something that ran: seconds from the start of its phase or step."""

    stream: Stream
    name: str
    start: float
    seconds: float

    def moved(self, seconds: float) -> "Span":
        """The same, later."""
        return Span(self.stream, self.name, self.start + seconds, self.seconds)


Free = dict[Stream, float]
"""When each stream is free again."""


def _run(free: Free, task: Task, ready: float) -> float:
    """Runs one transfer once it is `ready` and its stream is free; gives when it has ended."""
    end = free[task.stream] = max(free[task.stream], ready) + task.seconds
    return end


def phase_seconds(slices: Sequence[Slice]) -> float:
    """Seconds until everything has run.

    Equal slices in a row are run until one moves every clock by the same: the rest of the row does so too.
    """
    free: Free = dict.fromkeys(STREAMS, 0.0)
    at, count = 0, len(slices)
    ready = _gathered(free, slices[0], 0.0) if slices else 0.0
    last: tuple[float, ...] = ()
    while at < count:
        ready = _one(free, slices, at, ready)
        now = (ready, *free.values())
        beat = _beat(now, last) if at and slices[at - 1] is slices[at] else None
        if beat is not None:
            repeats = _repeats(slices, at)
            if repeats > 1:
                for stream in free:
                    free[stream] += beat * (repeats - 1) if free[stream] else 0.0
                ready += beat * (repeats - 1)
                at += repeats - 1
        last, at = now, at + 1
    return max(free.values())


def _gathered(free: Free, part: Slice, asked: float) -> float:
    """When what a slice waits for is there, asked for at `asked`."""
    ready = asked
    for task in part.before:
        ready = _run(free, task, ready)
    return ready


def _one(free: Free, slices: Sequence[Slice], at: int, ready: float) -> float:
    """Runs one slice and what follows it; gives when what the next one waits for is there."""
    part = slices[at]
    begun = max(free["compute"], ready)
    sent = free["compute"] = begun + part.seconds
    following = _gathered(free, slices[at + 1], begun) if at + 1 < len(slices) else ready
    for task in part.after:
        sent = _run(free, task, sent)
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


def phase_spans(slices: Sequence[Slice], name: str) -> Iterator[Span]:
    """Everything that runs, slice by slice, as `phase_seconds` counts it."""
    free: Free = dict.fromkeys(STREAMS, 0.0)

    def spans(tasks: Sequence[Task], ready: float) -> Iterator[Span]:
        for task in tasks:
            start = max(free[task.stream], ready)
            ready = _run(free, task, ready)
            yield Span(task.stream, task.name, start, task.seconds)

    gathered = list(spans(slices[0].before, 0.0)) if slices else []
    yield from gathered
    for at, part in enumerate(slices):
        ready = gathered[-1].start + gathered[-1].seconds if gathered else 0.0
        begun = max(free["compute"], ready)
        free["compute"] = begun + part.seconds
        yield Span("compute", name, begun, part.seconds)
        gathered = list(spans(slices[at + 1].before if at + 1 < len(slices) else (), begun))
        yield from gathered
        yield from spans(part.after, begun + part.seconds)
