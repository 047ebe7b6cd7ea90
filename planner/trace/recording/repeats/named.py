"""What events of a step name, by its place: in which run through which loop it was made, told by which run names it."""

from collections.abc import Sequence
from itertools import product

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import Kind
from gpu_plan.planner.trace.recording.recorder import RawTrace
from gpu_plan.planner.trace.recording.repeats.bodies import Body, Place, UnlikeError

_WAYS = tuple(way for way in product((0, 1, -1), (0, 1)) if way != (-1, 0))
"""How the run that is named goes with the run that names it, and with how many there are: always the same, the last,
each its own, each the one from the other end."""
Told = Sequence[tuple[int, int, Place]]
"""How many runs there were, which of them named something, and what."""


@dataclass(frozen=True, slots=True)
class Called:
    """Of something that is named: where the first run through its body makes it, and which run does."""

    body: int
    place: int
    by_run: int = 0
    by_runs: int = 0
    further: int = 0
    before: int | None = None
    """What stands for a run before the first one; None: what lies a run's length before it."""
    behind: int | None = None
    """The same of one behind the last."""

    def at(self, run: int, runs: Sequence[int], bodies: Sequence[Body]) -> Place:
        """What a run names where there are so many of each body."""
        if self.body < 0:
            return self.body, 0, self.place
        there = runs[self.body]
        named = self.by_run * run + self.by_runs * there + self.further
        if 0 <= named < there:
            return self.body, named, self.place
        length = bodies[self.body].length
        if named == -1:
            return -1, 0, self.place - length if self.before is None else self.before
        if named == there:
            return -1, 0, self.place + length if self.behind is None else self.behind
        raise UnlikeError("something is named that no run makes")


@dataclass(frozen=True, slots=True)
class Row:
    """What an operator names, one after the other: some more for each further run."""

    before: tuple[Called, ...]
    each: tuple[Called, ...] = ()
    behind: tuple[Called, ...] = ()

    def at(self, run: int, runs: Sequence[int], bodies: Sequence[Body], whole: int) -> list[Place]:
        """What the operator of that run names; `whole` are the runs of what is not cut short."""
        found = [one.at(run, runs, bodies) for one in self.before]
        if self.each:
            turns = next((runs[one.body] for one in self.each if one.body >= 0), whole)
            found += [one.at(turn, runs, bodies) for turn in range(turns) for one in self.each]
            found += [one.at(run, runs, bodies) for one in self.behind]
        return found


def called(told: Told) -> Called:
    """One thing. UnlikeError where no way to name it says all of `told`."""
    first = told[0][2]
    if first[0] < 0 and all(place == first for _, _, place in told):
        return Called(first[0], first[2])
    base = next((place for _, _, place in told if place[0] >= 0), None)
    if base is None:
        raise UnlikeError("something else is named of one sample more")
    body, _, place = base
    for by_run, by_runs in _WAYS:
        shift = next(seen[1] - by_run * run - by_runs * runs for runs, run, seen in told if seen[0] == body)
        found = _ends(Called(body, place, by_run, by_runs, shift), told)
        if found is not None:
            return found
    raise UnlikeError("what is named goes with no run")


def _ends(named: Called, told: Told) -> Called | None:
    """With what stands before the first run and behind the last, where that says all of `told`."""
    ends: dict[int, set[int]] = {-1: set(), 1: set()}
    for runs, run, (body, its, place) in told:
        which = named.by_run * run + named.by_runs * runs + named.further
        if 0 <= which < runs:
            if (body, its, place) != (named.body, which, named.place):
                return None
        elif body != -1 or which not in (-1, runs):
            return None
        else:
            ends[-1 if which < 0 else 1].add(place)
    if any(len(places) > 1 for places in ends.values()):
        return None
    before, behind = (next(iter(ends[end]), None) for end in (-1, 1))
    return Called(named.body, named.place, named.by_run, named.by_runs, named.further, before, behind)


def row(told: Sequence[tuple[int, int, Sequence[Place]]]) -> Row:
    """What one operator names."""
    few = told[0][2]
    more = len(told[-1][2]) - len(few)
    if not more and all(len(row) == len(few) for _, _, row in told):
        return Row(_all(told))
    if len(told) != 2 or more < 0:
        raise UnlikeError("an operator within a loop names more of one sample more")
    (runs, run, _), (others, other, many) = told
    for end in range(more, len(few) + 1):
        begin = end - more
        try:
            before = _all([(runs, run, few[:begin]), (others, other, many[:begin])])
            behind = _all([(runs, run, few[end:]), (others, other, many[end + more :])])
            turns = [(runs, 0, few[begin:end]), (others, 0, many[begin:end]), (others, 1, many[end : end + more])]
            return Row(before, _all(turns), behind)
        except UnlikeError:
            continue
    raise UnlikeError("an operator names something else of one sample more")


def _all(told: Sequence[tuple[int, int, Sequence[Place]]]) -> tuple[Called, ...]:
    return tuple(called([(runs, run, row[at]) for runs, run, row in told]) for at in range(len(told[0][2])))


def places_of(length: int, bodies: Sequence[Body], runs: Sequence[int]) -> list[Place]:
    """Of each event, where each body is run through so often; `length` is that of the row of one run."""
    found: list[Place] = []
    done = 0
    for number, body in enumerate(bodies):
        found += [(-1, 0, place) for place in range(done, body.begin)]
        found += [(number, run, place) for run in range(runs[number]) for place in range(body.begin, body.end)]
        done = body.end
    found += [(-1, 0, place) for place in range(done, length)]
    return found


def made_at(raw: RawTrace, places: Sequence[Place], kind: Kind) -> list[Place]:
    """Where each storage, or operator, has its event. UnlikeError where they are not numbered in the order of it."""
    at = [place for place, one in enumerate(raw.kind) if one == kind]
    if [raw.subject[place] for place in at] != list(range(len(at))):
        raise UnlikeError("something is not numbered as it was made")
    return [places[place] for place in at]
