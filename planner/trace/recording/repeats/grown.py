"""A recording at any micro batch of a step that runs through loops once for each sample, from a few small ones.

Two that ran in full, of two and of three samples, say what one sample more is: they determine where it stands and what
it names, and where sizes lie between. One of the largest micro batch, whose loops were cut short, determines with the
first how sizes grow. One of two samples whose loops ran for one of them must be told by all that, event by event, and
so must that of three: else nothing is told.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import Kind
from gpu_plan.planner.trace.recording.fit import Recording
from gpu_plan.planner.trace.recording.recorder import RawOperator, RawTensor, RawTrace
from gpu_plan.planner.trace.recording.repeats.bodies import NOWHERE, Body, Place, UnlikeError, bodies_of, rows_of
from gpu_plan.planner.trace.recording.repeats.named import Called, Row, called, made_at, places_of, row
from gpu_plan.planner.trace.rules import Ruled

FEW, MORE = 2, 3
"""Samples of the recordings that ran in full."""
MOST = (16, 64, 256)
"""Up to how many samples recordings are told together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What one sample more is."""

    low: Recording
    """Of two samples."""
    bodies: tuple[Body, ...]
    cut: tuple[bool, ...]
    """Which of them are run through less often where loops are cut short."""
    frees: dict[int, Called]
    """By place of a storage's end: which one."""
    operators: dict[int, tuple[Row, Row]]
    """By place of an operator: what it reads and what it writes."""

    def at(self, high: Recording, samples: int, run: int = 0) -> Recording:
        """The recording at a micro batch not above that of `high`, whose loops ran for two samples; of loops that run
        for all samples, or for `run` of them. UnlikeError where sizes do not grow evenly."""
        line = _Line(few=self.low.micro_batch, many=high.micro_batch, at=samples)
        raw = self._raw(high, line, run or samples)
        inputs = tuple(
            (name, line.through(size, other))
            for (name, size), (_, other) in zip(self.low.inputs, high.inputs, strict=True)
        )
        tokens = line.through(self.low.tokens, high.tokens)
        return replace(self.low, micro_batch=samples, raw=raw, inputs=inputs, tokens=tokens)

    def runs(self, samples: int, run: int) -> list[int]:
        """How often each body is run through besides what the smaller row has outside of it."""
        return [(run if cut else samples) - 1 for cut in self.cut]

    def _raw(self, high: Recording, line: "_Line", run: int) -> RawTrace:
        low, whole, bodies = self.low.raw, line.at - 1, self.bodies
        few, many = (_Seen(one.raw, self.places(one.micro_batch, FEW)) for one in (self.low, high))
        tensors = [_tensor(*pair, line) for pair in many.beside(few, Kind.ALLOC)]
        operators = [_operator(*pair, line) for pair in many.beside(few, Kind.OPERATOR)]
        runs = self.runs(line.at, run)
        found = RawTrace(modules=low.modules, host_reads=low.host_reads)
        numbers: dict[Place, int] = {NOWHERE: -1}
        frees, rows = self.frees, self.operators
        made_here, gone, ran = Kind.ALLOC, Kind.FREE, Kind.OPERATOR
        try:
            for place in places_of(len(low.kind), bodies, runs):
                _, turn, at = place
                kind, subject = low.kind[at], low.subject[at]
                if kind == made_here:
                    numbers[place] = len(found.tensors)
                    found.tensors.append(tensors[subject])
                    subject = numbers[place]
                elif kind == gone:
                    subject = numbers[frees[at].at(turn, runs, bodies)]
                elif kind == ran:
                    its, (reads, writes) = operators[subject], rows[at]
                    read = tuple([numbers[one] for one in reads.at(turn, runs, bodies, whole)])
                    written = tuple([numbers[one] for one in writes.at(turn, runs, bodies, whole)])
                    made = RawOperator(its.name, its.module, its.phase, its.flops, its.moved_bytes, read, written)
                    subject = len(found.operators)
                    found.operators.append(made)
                found.kind.append(kind)
                found.subject.append(subject)
        except KeyError:
            raise UnlikeError("something is named before it is made") from None
        return found

    def places(self, samples: int, run: int) -> list[Place]:
        """Of the events of a recording."""
        return places_of(len(self.low.raw.kind), self.bodies, self.runs(samples, run))


def growth_of(low: Recording, more: Recording) -> Growth:
    """What the second, of one sample more, has once more than the first. UnlikeError where that is not all."""
    bodies = tuple(bodies_of(*rows_of(low.raw, more.raw)))
    frees: dict[int, list[tuple[int, int, Place]]] = {}
    rows: dict[int, list[tuple[int, int, tuple[Sequence[Place], Sequence[Place]]]]] = {}
    for runs, recording in zip((FEW - 1, MORE - 1), (low, more), strict=True):
        seen = _Seen(recording.raw, places_of(len(low.raw.kind), bodies, [runs] * len(bodies)))
        for (_, run, at), kind, subject in zip(seen.places, seen.raw.kind, seen.raw.subject, strict=True):
            if kind == Kind.FREE:
                frees.setdefault(at, []).append((runs, run, seen.made[subject]))
            elif kind == Kind.OPERATOR:
                operator = seen.raw.operators[subject]
                both = ([seen.made[tid] for tid in operator.reads], [seen.made[tid] for tid in operator.writes])
                rows.setdefault(at, []).append((runs, run, both))
    return Growth(
        low=low,
        bodies=bodies,
        cut=tuple(_modules(low.raw, body) <= low.loops.modules for body in bodies),
        frees={at: called(told) for at, told in frees.items()},
        operators={
            at: (
                row([(runs, run, reads) for runs, run, (reads, _) in told]),
                row([(runs, run, writes) for runs, run, (_, writes) in told]),
            )
            for at, told in rows.items()
        },
    )


def _modules(raw: RawTrace, body: Body) -> set[int]:
    """Where a body's operators run."""
    found = set()
    for kind, subject in zip(raw.kind[body.begin : body.end], raw.subject[body.begin : body.end], strict=True):
        if kind in (Kind.ALLOC, Kind.FREE):
            found.add(raw.tensors[subject].module)
        elif kind == Kind.OPERATOR:
            found.add(raw.operators[subject].module)
    return found


class _Seen:
    """A recording, and where its storages and operators were made."""

    def __init__(self, raw: RawTrace, places: list[Place]) -> None:
        if len(places) != len(raw.kind):
            raise UnlikeError("loops do not run as often as there are samples")
        self.raw, self.places = raw, places
        self.made = [*made_at(raw, places, Kind.ALLOC), NOWHERE]
        """The last is that of number -1."""
        self.ran = made_at(raw, places, Kind.OPERATOR)

    def beside(self, few: "_Seen", kind: Kind) -> list[tuple[Any, Any]]:
        """Each storage, or operator, of a recording of fewer samples, and the one that stands there in this one."""
        ours, theirs = (
            (one.made[:-1], one.raw.tensors) if kind == Kind.ALLOC else (one.ran, one.raw.operators)
            for one in (self, few)
        )
        number = {place: at for at, place in enumerate(ours[0])}
        return [(its, ours[1][number[place]]) for place, its in zip(*theirs, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What tells recordings up to that of the largest micro batch."""

    growth: Growth
    high: Recording
    """Of the largest, whose loops ran for two samples."""

    def at(self, micro_batch: int) -> Recording | None:
        """The recording there; None where it cannot be told after all."""
        try:
            return self.growth.at(self.high, micro_batch)
        except UnlikeError:
            return None


def grown(record: Callable[[int, int], Recording], most: int) -> Grown | None:
    """What tells all up to `most` samples; None where nothing does. `record` makes the recording of so many samples,
    whose loops are run for so many of them, 0: for all."""
    try:
        low, more = record(FEW, 0), record(MORE, 0)
        growth = growth_of(low, more)
        high = record(most, FEW)
        return Grown(growth=growth, high=high) if proved(growth, high, more, record(FEW, 1)) else None
    except UnlikeError:
        return None


def proved(growth: Growth, high: Recording, more: Recording, one: Recording) -> bool:
    """Whether it tells the recording of three samples, that of two whose loops ran for `one`, and `high`, whose loops
    ran for two."""
    if not same(growth.at(high, MORE), more):
        return False
    cut = ((growth.at(high, high.micro_batch, FEW), high), (growth.at(high, FEW, 1), one))
    return all(
        _read_alike(told.raw, seen.raw) and same(told, replace(seen, raw=_with_reads(seen.raw, told.raw)))
        for told, seen in cut
    )


def same(one: Recording, other: Recording) -> bool:
    """Whether two recordings say the same, event by event."""
    return one.raw == other.raw and _said(one) == _said(other)


def _said(one: Recording) -> tuple[object, ...]:
    return one.micro_batch, one.inputs, one.tokens, one.notes, one.viewed, one.read


def _read_alike(told: RawTrace, cut: RawTrace) -> bool:
    """Whether operators read and write the same storages; where loops were cut short, what is joined stands there
    again for what was left out."""
    if len(told.operators) != len(cut.operators):
        return False
    return all(
        one.writes == other.writes
        and other.reads[: len(one.reads)] == one.reads
        and set(other.reads[len(one.reads) :]) <= set(one.reads)
        for one, other in zip(told.operators, cut.operators, strict=True)
    )


def _with_reads(cut: RawTrace, told: RawTrace) -> RawTrace:
    operators = [replace(one, reads=other.reads) for one, other in zip(cut.operators, told.operators, strict=True)]
    return replace(cut, operators=operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Between two micro batches."""

    few: int
    many: int
    at: int

    def through(self, low: int, high: int) -> int:
        """A number there that is known at both."""
        if low == high:
            return low
        slope, rest = divmod(high - low, self.many - self.few)
        if rest:
            raise UnlikeError("some size does not grow evenly")
        return low + slope * (self.at - self.few)

    def proportional(self, low: int, high: int) -> bool:
        return low == high or low * self.many == high * self.few


def _tensor(low: RawTensor, high: RawTensor, line: _Line) -> RawTensor:
    if low.ruled is not None or high.ruled is not None:
        if low.ruled is None or high.ruled is None or low.ruled.rule != high.ruled.rule:
            raise UnlikeError("a kernel's temporary follows another rule")
        rule = Ruled(low.ruled.rule, line.through(low.ruled.fixed, high.ruled.fixed))
        return replace(low, nbytes=rule.nbytes(0), shape=(rule.nbytes(0),), ruled=rule)
    if low.nbytes == high.nbytes and low.shape == high.shape:
        return low
    if low.is_scratch and not line.proportional(low.nbytes, high.nbytes):
        raise UnlikeError("a kernel's temporary may bend")
    shape = tuple(line.through(*pair) for pair in zip(low.shape, high.shape, strict=True))
    return replace(low, nbytes=line.through(low.nbytes, high.nbytes), shape=shape)


def _operator(low: RawOperator, high: RawOperator, line: _Line) -> RawOperator:
    if low.flops == high.flops and low.moved_bytes == high.moved_bytes:
        return low
    flops, moved = line.through(low.flops, high.flops), line.through(low.moved_bytes, high.moved_bytes)
    return replace(low, flops=flops, moved_bytes=moved)
