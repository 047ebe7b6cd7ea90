"""A pipeline's step as a Chrome/Perfetto trace: one process for each rank of a pipeline, what it computes in order."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpu_plan.planner.pipeline.schedules import Kind
from gpu_plan.planner.pipeline.timeline import Span, Timeline

_MICROSECONDS = 1e6
_WORDS = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT: "gradient of the input",
    Kind.WEIGHT: "gradients of the weights",
}


class Ending(NamedTuple):
    """What a rank does once the last one has run its actions, one after the other, in seconds."""

    waited: float
    """Transfers that nothing hides."""
    optimizer: float


def pipeline_trace(timeline: Timeline, endings: Sequence[Ending], title: str) -> dict[str, Any]:
    """Complete events in microseconds; the last one ends with the step."""
    events = list(_names(timeline, title))
    events += [_event(span.rank, _name(span), span.start, span.end - span.start) for span in timeline.spans]
    for rank, ending in enumerate(endings):
        events.append(_event(rank, "transfers", timeline.seconds, ending.waited))
        events.append(_event(rank, "optimizer", timeline.seconds + ending.waited, ending.optimizer))
    return {"displayTimeUnit": "ms", "traceEvents": [event for event in events if event["ph"] == "M" or event["dur"]]}


def _names(timeline: Timeline, title: str) -> Iterator[dict[str, Any]]:
    for rank in range(timeline.ranks):
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": f"{title}, stage {rank}"}}
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_sort_index", "args": {"sort_index": rank}}
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "thread_name", "args": {"name": "compute"}}


def _name(span: Span) -> str:
    return f"{_WORDS[span.action.kind]} {span.action.micro_batch}, stage {span.action.stage}"


def _event(rank: int, name: str, start: float, seconds: float) -> dict[str, Any]:
    at, lasts = round(start * _MICROSECONDS, 3), round(seconds * _MICROSECONDS, 3)
    return {"ph": "X", "name": name, "ts": at, "dur": lasts, "pid": rank, "tid": 0, "cat": "compute"}
