"""Where a predicted and a recorded memory history part. Pure; knows no file and no format.

Both are sequences of requested sizes. They are laid over each other where their sizes agree; what lies between two
such stretches stands on one side alone. A record may begin and end anywhere in the run.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gpu_plan.planner.plan.document import SCHEMA_VERSION
from gpu_plan.planner.snapshot.read import Allocation, History

_ANCHOR = 12
"""Sizes in a row that must agree for two far places to be taken for the same."""
_AGREE = 4
"""Sizes in a row that must agree after a small gap."""
_LOOK_AHEAD = 64
"""Longest gap, both sides together, that is looked for step by step."""
_CANDIDATES = 100
"""Far places that are tried; equal layers have equal rows."""
_SHOWN = 12
_LIBRARY = ("/torch/", "torch/", "??")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One allocation in words."""

    number: int
    """Allocations before it in its own history."""
    nbytes: int
    what: str
    phase: str
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Stretches that do not agree; either may be empty."""

    predicted: tuple[Request, ...]
    """Its first few."""
    recorded: tuple[Request, ...]
    predicted_count: int
    recorded_count: int
    predicted_bytes: int
    recorded_bytes: int
    times: int
    """How often these very sizes differ so, layer by layer; requests and counts are those of the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Bytes requested in one phase for one category."""

    phase: str
    category: str
    predicted: int
    recorded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One history in figures."""

    name: str
    allocations: int
    peak_requested_bytes: int
    peak_reserved_bytes: int
    peak: Request | None
    """The request that reached the peak."""
    ran_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDiff:
    """Everything that sets the recorded history apart from the predicted one."""

    schema_version: int = SCHEMA_VERSION
    document: Literal["snapshot-diff"] = "snapshot-diff"
    predicted: Side
    recorded: Side
    agreeing: int
    """Allocations that stand in both, in order."""
    before_record: int
    """Predicted allocations before the first that the record has."""
    after_record: int
    first: Gap | None
    """Where the histories part first; None where they agree as far as both go."""
    gaps: tuple[Gap, ...]
    """The largest, by the bytes that they differ in."""
    sums: tuple[Sum, ...]
    """By phase and category, over what the record spans; what was not predicted has the category `not predicted`."""
    same: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "same", self.first is None)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """`count` sizes agree from these places on."""

    predicted: int
    recorded: int
    count: int


def compare(predicted: History, recorded: History) -> SnapshotDiff:
    """Lays two histories over each other. Linear in their lengths where they mostly agree."""
    ours, theirs = predicted.allocations, recorded.allocations
    stretches = _stretches([a.nbytes for a in ours], [a.nbytes for a in theirs])
    gaps = _gaps(ours, theirs, stretches)
    last = stretches[-1] if stretches else None
    return SnapshotDiff(
        predicted=_side(predicted),
        recorded=_side(recorded),
        agreeing=sum(stretch.count for stretch in stretches),
        before_record=stretches[0].predicted if stretches else len(ours),
        after_record=len(ours) - (last.predicted + last.count) if last else 0,
        first=gaps[0] if gaps else None,
        gaps=_largest(gaps),
        sums=_sums(ours, theirs, stretches),
    )


def _stretches(ours: Sequence[int], theirs: Sequence[int]) -> list[_Stretch]:
    anchors: dict[tuple[int, ...], list[int]] = {}
    for place in range(len(ours) - _ANCHOR + 1):
        anchors.setdefault(tuple(ours[place : place + _ANCHOR]), []).append(place)
    found: list[_Stretch] = []
    begin = _anchored(ours, theirs, anchors, (0, 0))
    while begin is not None:
        stretch = _Stretch(*begin, _agreement(ours, theirs, *begin))
        found.append(stretch)
        end = stretch.predicted + stretch.count, stretch.recorded + stretch.count
        begin = _after_gap(ours, theirs, *end) or _anchored(ours, theirs, anchors, end)
    return found


def _agreement(ours: Sequence[int], theirs: Sequence[int], left: int, right: int) -> int:
    count, most = 0, min(len(ours) - left, len(theirs) - right)
    while count < most and ours[left + count] == theirs[right + count]:
        count += 1
    return count


def _after_gap(ours: Sequence[int], theirs: Sequence[int], left: int, right: int) -> tuple[int, int] | None:
    """The nearest places from which some sizes agree again."""
    for distance in range(1, _LOOK_AHEAD):
        for skipped in range(distance + 1):
            a, b = left + skipped, right + distance - skipped
            if a + _AGREE <= len(ours) and b + _AGREE <= len(theirs) and ours[a : a + _AGREE] == theirs[b : b + _AGREE]:
                return a, b
    return None


def _anchored(
    ours: Sequence[int],
    theirs: Sequence[int],
    anchors: dict[tuple[int, ...], list[int]],
    after: tuple[int, int],
) -> tuple[int, int] | None:
    """The first place of the record from which a long row of sizes stands in the prediction, too; the longest row."""
    for place in range(after[1], len(theirs) - _ANCHOR + 1):
        later = [at for at in anchors.get(tuple(theirs[place : place + _ANCHOR]), ()) if at >= after[0]]
        if later:
            return max(later[:_CANDIDATES], key=lambda at: _agreement(ours, theirs, at, place)), place
    return None


def _gaps(ours: Sequence[Allocation], theirs: Sequence[Allocation], stretches: Sequence[_Stretch]) -> list[Gap]:
    """Between agreeing stretches; at the ends, only what the record has and the prediction has not."""
    if not stretches:
        return [_gap(ours, theirs, (0, len(ours)), (0, len(theirs)))]
    first, last = stretches[0], stretches[-1]
    end = last.predicted + last.count, last.recorded + last.count
    spans = [((0, 0), (0, first.recorded))]
    for before, after in itertools.pairwise(stretches):
        spans.append(
            ((before.predicted + before.count, after.predicted), (before.recorded + before.count, after.recorded))
        )
    spans.append(((end[0], end[0]), (end[1], len(theirs))))
    return [_gap(ours, theirs, left, right) for left, right in spans if left[0] < left[1] or right[0] < right[1]]


def _gap(
    ours: Sequence[Allocation], theirs: Sequence[Allocation], left: tuple[int, int], right: tuple[int, int]
) -> Gap:
    return Gap(
        predicted=tuple(_request(ours, number) for number in range(*left)[:_SHOWN]),
        recorded=tuple(_request(theirs, number) for number in range(*right)[:_SHOWN]),
        predicted_count=left[1] - left[0],
        recorded_count=right[1] - right[0],
        predicted_bytes=sum(allocation.nbytes for allocation in ours[slice(*left)]),
        recorded_bytes=sum(allocation.nbytes for allocation in theirs[slice(*right)]),
        times=1,
    )


def _largest(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Equal ones together, by the bytes that they differ in over all."""
    alike: dict[tuple[object, ...], list[Gap]] = {}
    for gap in gaps:
        sizes = tuple(tuple(request.nbytes for request in side) for side in (gap.predicted, gap.recorded))
        alike.setdefault((sizes, gap.predicted_bytes, gap.recorded_bytes), []).append(gap)
    grouped = [replace(same[0], times=len(same)) for same in alike.values()]
    return tuple(sorted(grouped, key=lambda gap: -gap.times * abs(gap.predicted_bytes - gap.recorded_bytes))[:_SHOWN])


def _sums(ours: Sequence[Allocation], theirs: Sequence[Allocation], stretches: Sequence[_Stretch]) -> tuple[Sum, ...]:
    """A recorded allocation that agrees is what the prediction says that it is."""
    if not stretches:
        return ()
    left: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    last, done, phase = stretches[-1], 0, ""
    for allocation in ours[stretches[0].predicted : last.predicted + last.count]:
        left[_phase(allocation), _category(allocation)] += allocation.nbytes
    for stretch in stretches:
        phase = _phase(ours[stretch.predicted])
        right[phase, "not predicted"] += sum(a.nbytes for a in theirs[done : stretch.recorded])
        for allocation in ours[stretch.predicted : stretch.predicted + stretch.count]:
            right[_phase(allocation), _category(allocation)] += allocation.nbytes
        done = stretch.recorded + stretch.count
    right[phase, "not predicted"] += sum(a.nbytes for a in theirs[done:])
    keys = dict.fromkeys([*left, *right])
    return tuple(
        Sum(phase=key[0], category=key[1], predicted=left[key], recorded=right[key])
        for key in keys
        if left[key] or right[key]
    )


def _side(history: History) -> Side:
    return Side(
        name=history.name,
        allocations=len(history.allocations),
        peak_requested_bytes=history.peak_requested,
        peak_reserved_bytes=history.peak_reserved,
        peak=_request(history.allocations, history.peak_at - 1) if history.peak_at else None,
        ran_out=history.ran_out,
    )


def _request(allocations: Sequence[Allocation], number: int) -> Request:
    allocation = allocations[number]
    return Request(
        number=number,
        nbytes=allocation.nbytes,
        what=_words(allocation),
        phase=_phase(allocation),
        category=_category(allocation),
    )


def _named(allocation: Allocation, key: str) -> str:
    """What a predicted allocation says of itself in a frame of that name."""
    return next((frame.name for frame in allocation.frames if frame.file == key and frame.line == 0), "")


def _phase(allocation: Allocation) -> str:
    return _named(allocation, "phase")


def _category(allocation: Allocation) -> str:
    return _named(allocation, "category") or allocation.category


def _words(allocation: Allocation) -> str:
    """Module and operator; in a record, the innermost frame and the innermost one outside of torch."""
    frames = allocation.frames
    if not frames:
        return "no stack recorded"
    if _phase(allocation):
        return f"{frames[0].file}: {frames[0].name}"
    outer = next((frame for frame in frames if not any(part in frame.file for part in _LIBRARY)), None)
    shown = [frames[0]] if outer is None or outer is frames[0] else [frames[0], outer]
    return " in ".join(f"{frame.name} ({'/'.join(frame.file.split('/')[-2:])}:{frame.line})" for frame in shown)
