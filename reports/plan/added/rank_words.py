"""Ranks that are not alike, and one to which more tokens go than to others, in words, the same in every report."""

from gpu_plan.planner.plan.document import Candidate, CrowdedFigures, RankFigures
from gpu_plan.planner.units import GIB, format_gib
from gpu_plan.reports.durations import seconds

RANK_HEADS = ("ranks", "how many", "parameters", "optimizer state", "peak GiB", "used GiB")
"""Headings of `rank_rows`; all but the first are numbers."""


def rank_rows(candidate: Candidate) -> list[tuple[str, ...]]:
    """One row for each kind of rank, that of rank 0 first; none where all are alike."""
    if len(candidate.ranks) < 2:
        return []
    return [
        (
            place_words(one),
            f"{one.count * one.replicas:,}",
            f"{one.parameters:,}",
            _gib(one.at_peak.optimizer_state),
            _gib(one.peak_allocated_bytes),
            _gib(one.device_used_bytes),
        )
        for one in candidate.ranks
    ]


def place_words(one: RankFigures) -> str:
    """`0-6`, `0, 2, 4 and 3 more runs`."""
    named = [f"{first}-{last}" if last > first else str(first) for first, last in one.ranks]
    more = f" and {len(named) - 3} more runs" if len(named) > 3 else ""
    return ", ".join(named[:3]) + more + (" of each replica" if one.replicas > 1 else "")


def alike_words(candidate: Candidate) -> str:
    """That all ranks take the same; empty where they do not, or it is not known."""
    if len(candidate.ranks) != 1:
        return ""
    (one,) = candidate.ranks
    evenly = "" if candidate.crowded is None else ", as long as experts are chosen evenly"
    return f"all {one.count * one.replicas:,} ranks take as much{evenly}"


def crowded_lines(candidate: Candidate) -> list[list[str]]:
    """What a rank takes whose experts are chosen more often than others'; none where ranks hold no experts."""
    crowded, memory, speed = candidate.crowded, candidate.memory, candidate.speed
    if crowded is None or memory is None or speed is None:
        return []
    used, step = _gib(memory.device_used_bytes), seconds(speed.step_seconds)
    at_most = (
        f"{_gib(crowded.device_used_bytes)} GiB instead of {used}, {seconds(crowded.step_seconds)} instead of {step}"
    )
    return [
        [
            "experts are counted as chosen evenly; a rank to which the most tokens go that the code lets through,"
            f" {crowded.most_times:.3g} times its share, takes {at_most}: {_room_words(crowded)}"
        ]
    ]


def _room_words(crowded: CrowdedFigures) -> str:
    if crowded.borne_times >= crowded.most_times:
        return "it fits"
    if crowded.borne_times < 1.01:
        return "there is no room for more than its share"
    return f"there is room for {crowded.borne_times:.2f} times its share"


def _gib(size: int) -> str:
    return format_gib(size, 1 if size >= GIB // 10 or size == 0 else 4)
