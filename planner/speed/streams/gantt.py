"""A step as it is expected to run: what is on which stream when, as spans and as a Chrome/Perfetto trace."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpu_plan.planner.speed.streams.overlap import PhaseWork
from gpu_plan.planner.speed.streams.schedule import STREAMS, Span, phase_spans

_MICROSECONDS = 1e6


def step_spans(phases: Iterable[tuple[str, PhaseWork, float]]) -> Iterator[Span]:
    """Phases one after the other: name, what runs, and the seconds that the step counts for it."""
    start = 0.0
    for name, work, seconds in phases:
        spans = list(phase_spans(work.slices, name))
        waited = max((span.start + span.seconds for span in spans), default=0.0)
        for task in work.waited:
            spans.append(Span(task.stream, task.name, waited, task.seconds))
            waited += task.seconds
        # The step never counts more than running one by one (overlap: exposed_seconds).
        fits = min(1.0, seconds / waited) if waited else 1.0
        for span in spans:
            yield Span(span.stream, span.name, start + span.start * fits, span.seconds * fits)
        start += seconds


def chrome_trace(spans: Sequence[Span], title: str) -> dict[str, Any]:
    """The trace that chrome://tracing and Perfetto open: complete events in microseconds, one thread a stream."""
    threads = {stream: number for number, stream in enumerate(STREAMS)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": title}},
    ]
    for stream, number in threads.items():
        if any(span.stream == stream for span in spans):
            named = {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": stream}}
            order = {"ph": "M", "pid": 0, "tid": number, "name": "thread_sort_index", "args": {"sort_index": number}}
            events += [named, order]
    for span in spans:
        if span.seconds > 0:
            at, lasts = span.start * _MICROSECONDS, span.seconds * _MICROSECONDS
            where = {"pid": 0, "tid": threads[span.stream], "cat": span.stream}
            events.append({"ph": "X", "name": span.name, "ts": round(at, 3), "dur": round(lasts, 3), **where})
    return {"displayTimeUnit": "ms", "traceEvents": events}
