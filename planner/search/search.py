"""Tries every family of a task's candidates, and keeps what fits and why the rest does not."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Generic, Protocol, TypeVar

from gpu_plan.planner.errors import StoppedError, UsageError
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.aside.forked import Aside, beside
from gpu_plan.planner.search.evaluator import J
from gpu_plan.planner.search.front import completed, front
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.task import Explored, F, Rejected, Task
from gpu_plan.planner.search.underway.known import known_so_far
from gpu_plan.planner.search.underway.later import Later
from gpu_plan.planner.search.underway.watch import Watcher
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.shipped.needed import NotTraceableError
from gpu_plan.planner.workload.prefer import Prefer


@dataclass(slots=True, kw_only=True)
class Found(Generic[J]):
    """What a search found: plans best first, those that fit before the tight ones."""

    plans: list[J] = field(default_factory=list)
    rejected: list[Rejected[J]] = field(default_factory=list)
    inapplicable: list[str] = field(default_factory=list)
    """Families that make no sense here, with the reason."""
    left_out: list[str] = field(default_factory=list)
    """Families that were not explored though they make sense, with the reason."""
    untraced: NotTraceableError | None = None
    """Why the first of them was not whose step nothing here can trace."""
    explored: int = 0
    """Families that were."""
    front: frozenset[int] = frozenset()
    """Which of the plans no other beats in time, memory of the device and RAM of the node at once, by position."""
    ranking: Ranking = field(default_factory=Ranking)
    """How the plans were ordered."""

    @property
    def best(self) -> J | None:
        """The best plan that fits."""
        return self.plans[0] if self.plans and self.plans[0].verdict == "fits" else None


A = TypeVar("A", contravariant=True)
"""A family, as it is only taken in."""


class Elsewhere(Protocol[A, J]):
    """What of a search another process may do."""

    def parts(self, known: Sequence[A]) -> Sequence[Sequence[int]]:
        """Places of the families that another process may look at, together those that have much in common."""

    def explore(self, family: A) -> object:
        """Looks at one, in another process; None where it is to be done here."""

    def bounded(self, family: A, sent: Any) -> None:
        """Takes in what was found to judge by whether it is explored at all."""

    def explored(self, family: A, sent: Any, more: Callable[[bool], Any]) -> Explored[J] | None:
        """What exploring it came to, here; None where it was not explored. `more` gives what is said of it later: None
        where that is not there, waited for where that is asked."""

    def more(self, family: A) -> object:
        """What is said of a family later, in the process that explored it."""

    def tell(self, found: "Found[J]") -> None:
        """All families were looked at, and only what is tried around the best ones is left: what is said of those that
        were found here may be begun."""


_UNWATCHED = Watcher()


def search(
    task: Task[F, J],
    *,
    exhaustive: bool = False,
    prefer: Prefer = Prefer.BALANCE,
    watch: Watcher = _UNWATCHED,
    elsewhere: Elsewhere[F, J] | None = None,
) -> Found[J]:
    """The best candidate of every family and the whole front, and one of each family that fails.

    UsageError where no family makes sense; NotTraceableError where there is no plan, and some step that could be one is
    not shipped and cannot be traced.

    `exhaustive` evaluates in full even what its model states alone rule out (a pinned configuration). `watch` is told
    what is done, first what model states alone decide. StoppedError where the user stops it: with what was found.
    `elsewhere` says what other processes may do meanwhile; what is found is the same.
    """
    known = list(task.families())
    apart = () if elsewhere is None or exhaustive else elsewhere.parts(known)
    if elsewhere is None or not apart:
        return _searched(task, known, _There(), exhaustive=exhaustive, prefer=prefer, watch=watch)
    parts = (lambda place: elsewhere.explore(known[place]), lambda place: elsewhere.more(known[place]))
    with beside(apart, *parts) as aside:
        there = _There(elsewhere, aside)
        found = _searched(task, known, there, exhaustive=exhaustive, prefer=prefer, watch=watch)
        aside.finish()
        return found


@dataclass(frozen=True, slots=True)
class _There(Generic[F, J]):
    """What other processes find meanwhile."""

    elsewhere: Elsewhere[F, J] | None = None
    aside: Aside | None = None

    def sent(self, family: F, place: int) -> Any:
        """What came of a family, after which it is judged whether it is explored; None where all is done here."""
        sent = None if self.aside is None else self.aside.answer(place)
        if sent is not None and self.elsewhere is not None:
            self.elsewhere.bounded(family, sent)
        return sent

    def tell(self, found: "Found[J]") -> None:
        """What is said of candidates is begun there."""
        if self.elsewhere is not None:
            self.elsewhere.tell(found)

    def explored(self, family: F, place: int, sent: Any) -> Explored[J] | None:
        """A family that was explored there."""
        if sent is None or self.elsewhere is None or self.aside is None:
            return None
        aside = self.aside
        return self.elsewhere.explored(family, sent, lambda wait: aside.more(place, wait=wait))


def _searched(
    task: Task[F, J],
    known: Sequence[F],
    there: _There[F, J],
    *,
    exhaustive: bool,
    prefer: Prefer,
    watch: Watcher,
) -> Found[J]:
    """As `search`."""
    found: Found[J] = Found(ranking=Ranking(prefer=prefer, host_ram_bytes=task.evaluator.node_ram_bytes))
    others: list[J] = []
    refusals = [task.refusal(family) for family in known]
    decided = Later(lambda: _by_states(task, known, refusals))
    watch.decided(decided)
    tried = zip(known, refusals, strict=True)
    around = iter(()) if exhaustive else task.finer(found.ranking, found.plans, found.rejected, others)
    more = ((family, task.refusal(family)) for family in around)
    for place, (family, refusal) in enumerate(itertools.chain(tried, more)):
        if place == len(known):
            there.tell(found)
        watch.turns(task.words_of(family), place, max(place + 1, len(known)))
        try:
            explored = _looked_at(task, family, refusal, found, exhaustive, there, place)
        except KeyboardInterrupt:
            plans = found.ranking.ordered(found.plans)
            raise StoppedError(
                known_so_far(plans, found.rejected, looked_at=place, of=max(place, len(known)), decided=decided)
            ) from None
        if explored is not None:
            others += explored.others if explored.best is not None else ()
            watch.judged(explored.best, None if explored.rejected is None else explored.rejected.reason)
    if found.untraced is not None and not found.plans:
        raise found.untraced
    if found.inapplicable and not found.plans and not found.rejected:
        raise UsageError(f"{_together(found.inapplicable)}: change that option or leave it out")
    found.plans = found.ranking.ordered([*found.plans, *completed(found.plans, others, task.evaluator.simulate)])
    found.front = front(found.plans)
    found.rejected.sort(key=lambda rejected: rejected.judgement.low_bytes)
    return found


def _together(inapplicable: Sequence[str]) -> str:
    """Reasons with the families that they are of; what keeps all of them away, once."""
    families = dict.fromkeys(inapplicable)
    reasons = dict.fromkeys(text.partition(": ")[2] for text in families)
    return "; ".join(reasons if len(reasons) == 1 and len(families) > 1 else families)


def _by_states(task: Task[F, J], known: Sequence[F], refusals: Sequence[str | None]) -> list[J]:
    """What model states alone say of every title, the least of each: no step is traced for it."""
    least: dict[str, J] = {}
    for family, refusal in zip(known, refusals, strict=True):
        judged = None if refusal is not None else task.by_states(family)
        if judged is not None and (judged.title not in least or judged.least_bytes < least[judged.title].least_bytes):
            least[judged.title] = judged
    return list(least.values())


def _looked_at(
    task: Task[F, J],
    family: F,
    refusal: str | None,
    found: Found[J],
    exhaustive: bool,
    there: _There[F, J],
    place: int,
) -> Explored[J] | None:
    """Adds to `found` what a family comes to; None where it was not explored."""
    explored = None
    if refusal is None:
        sent = there.sent(family, place)
        try:
            reason = None if exhaustive else task.hopeless(family, found.ranking, found.plans)
            if reason is not None:
                found.left_out.append(f"{task.words_of(family)}: {reason}")
                return None
            explored = there.explored(family, place, sent) or task.explore(family, exhaustive=exhaustive)
        except CannotSplitError as problem:
            refusal = str(problem)
        except NotTraceableError as problem:
            found.left_out.append(f"{task.words_of(family)}: no trace of it is shipped")
            found.untraced = found.untraced or problem
            return None
    if explored is None:
        found.inapplicable.append(f"{task.name(family)}: {refusal}")
        return None
    found.explored += 1
    if explored.rejected is not None:
        found.rejected.append(explored.rejected)
    if explored.best is not None:
        found.plans.append(explored.best)
    return explored
