"""What each degree of a plan costs and buys, in words, the same in every report. Nothing here knows a format."""

from collections.abc import Mapping

from gpu_plan.planner.plan.document import Candidate, DegreeFigures
from gpu_plan.planner.units import format_bytes, format_gib
from gpu_plan.reports.durations import seconds

DEGREE_HEADS = ("degree", "sends", "in calls", "seconds", "waited for", "without it")
"""Headings of `degree_rows`."""
_NAMES: Mapping[str, str] = {
    "tensor": "tensor parallel", "expert": "expert parallel", "context": "context parallel", "data": "data parallel",
    "replicas": "replicas", "host": "offload",
}  # fmt: skip


def degree_rows(candidate: Candidate) -> list[tuple[str, ...]]:
    """One row for each degree that sends, those within a layer first; none where nothing is sent."""
    speed = candidate.speed
    if speed is None or not speed.degrees:
        return []
    return [_row(one, candidate) for one in speed.degrees]


def _row(one: DegreeFigures, candidate: Candidate) -> tuple[str, ...]:
    assert candidate.speed is not None
    return (
        _NAMES.get(one.axis, one.axis) + ("" if one.ranks is None else f" {one.ranks}"),
        format_bytes(one.sent_bytes),
        f"{one.calls:,}",
        seconds(one.seconds),
        _waited(one, candidate.speed.step_seconds),
        without_words(one, candidate),
    )


def _waited(one: DegreeFigures, step: float) -> str:
    """`43 ms (5% of the step)`; `less than 1% of the step` where that is all."""
    share = one.exposed_seconds / step
    if share < 0.005:
        return "less than 1% of the step"
    # Without it, others would be hidden that now are not.
    more = ", with what it holds up" if one.exposed_seconds > 1.01 * one.seconds else ""
    return f"{seconds(one.exposed_seconds)} ({share:.0%} of the step{more})"


def without_words(one: DegreeFigures, candidate: Candidate) -> str:
    """`FSDP × 16, micro batch 1: 61.0 GiB, 1.21 times the speed`; empty where none was looked for."""
    if one.without is None:
        return ""
    pieces = [one.without]
    memory, speed = candidate.memory, candidate.speed
    if one.without_device_used_bytes is not None and memory is not None:
        pieces.append(f"{format_gib(one.without_device_used_bytes)} GiB")
    if one.without_samples_per_second is not None and speed is not None and speed.samples_per_second:
        pieces.append(f"{one.without_samples_per_second / speed.samples_per_second:.2f} times the speed")
    return ", ".join(pieces)


def degree_lines(candidate: Candidate) -> list[str]:
    """The same rows as sentences, for pages too narrow for a table."""
    lines = []
    for name, sent, calls, taken, waited, without in degree_rows(candidate):
        verb = "is" if waited.startswith("less") else "are"
        said = f"{name}: sends {sent} in {calls} calls, {taken}; {waited} {verb} waited for"
        lines.append(f"{said}. Without it: {without}" if without else said)
    return lines
