"""Families of a training job that another process explores, as they go there and come back."""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, NoReturn

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.aside.forked import LeftUndoneError
from gpu_plan.planner.search.aside.telling import Telling
from gpu_plan.planner.search.document import sections_of
from gpu_plan.planner.search.front import beats
from gpu_plan.planner.search.search import Found
from gpu_plan.planner.search.shown.sections import Sections
from gpu_plan.planner.search.task import Explored, Rejected
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.elsewhere.sent import SentJudgement, Shown, receive, send
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.least.together import Least
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.provider import Given, TraceProvider
from gpu_plan.planner.trace.shipped.needed import NotTraceableError

_FEWEST = 6
"""Families, below which a process takes longer to begin than they do."""
_TOGETHER = 6
"""Families of one group: of many replicas there are dozens, which would keep one process waiting for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentExplored:
    """What exploring a family came to."""

    best: SentJudgement | None
    rejected: tuple[SentJudgement, str] | None
    others: tuple[SentJudgement, ...]
    evaluated: int
    """Candidates that were judged."""
    asked: tuple[Given, ...]
    """Traces that were asked for and had not been before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFamily:
    """What another process found of a family."""

    least: Least | None = None
    """The least that it takes, of one that is explored only if that may come first."""
    asked: tuple[Given, ...] = ()
    """Traces that were asked for it."""
    explored: SentExplored | None = None
    """None of one that would take a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSections:
    """What a document says of a family's candidates."""

    best: Sections | None
    rejected: Sections | None
    others: tuple[Sections | None, ...]
    """Of those that fit."""


@dataclass(frozen=True, slots=True)
class TrainingElsewhere:
    """What of a training job's search another process may do: families whose traces are at hand."""

    task: TrainingTask
    provider: TraceProvider
    telling: Telling
    """What a document says of candidates, as far as another process was begun with it."""
    _held: list[StepJudgement] = field(default_factory=list)
    """Plans that fit, of the process that explores."""
    _explored_here: dict[Family, Explored[StepJudgement]] = field(default_factory=dict)
    """What it explored, the others with what simulating them came to."""

    def parts(self, known: Sequence[Family]) -> Sequence[Sequence[int]]:
        """Places of the families that are explored whatever comes of the others, or judged by a bound first: those of
        one strategy that replay one trace share what follows from it."""
        task = self.task
        groups: dict[tuple[object, ...], list[int]] = {}
        for place, one in enumerate(known):
            if task.looked_at_anyway(one) or task.bounded_first(one):
                alike = (one.strategy.name, str(one.checkpointing), one.tensor_parallel, one.expert_parallel)
                groups.setdefault(alike, []).append(place)
        found = [
            group[begins : begins + _TOGETHER]
            for group in groups.values()
            for begins in range(0, len(group), _TOGETHER)
        ]
        return found if sum(map(len, found)) >= _FEWEST else ()

    def explore(self, family: Family) -> SentFamily | None:
        """Looks at one, with what a document says of the plan and of what failed. Nothing is traced or told."""
        task, provider = self.task, self.provider
        provider.note = _left_undone
        if task.refusal(family) is not None:
            return None
        if task.looked_at_anyway(family):
            return SentFamily(explored=self._explored(family))
        known = len(provider.asked)
        least = task.bounds.least(family, task.cuts_of(family))
        asked = provider.given(known)
        try:
            explored = None if least.seconds is None else self._explored(family)
        except (LeftUndoneError, NotTraceableError, CannotSplitError):
            explored = None
        return SentFamily(least=least, asked=asked, explored=explored)

    def _explored(self, family: Family) -> SentExplored:
        task, provider, evaluator = self.task, self.provider, self.task.evaluator
        known, judged = len(provider.asked), evaluator.evaluated
        explored = task.explore(family, exhaustive=False)
        best, rejected = explored.best, explored.rejected
        self._held.extend([] if best is None or best.verdict != "fits" else [best])
        others = tuple(map(self._completed, explored.others))
        self._explored_here[family] = replace(explored, others=others)
        return SentExplored(
            best=None if best is None else send(best, compared=True),
            rejected=None if rejected is None else (send(rejected.judgement, compared=False), rejected.reason),
            others=tuple(send(other, compared=False) for other in others),
            evaluated=evaluator.evaluated - judged,
            asked=provider.given(known),
        )

    def bounded(self, family: Family, sent: Any) -> None:
        """Takes in the least that it takes."""
        assert isinstance(sent, SentFamily)
        self.provider.asks(sent.asked)
        if sent.least is not None:
            self.task.bounds.know(family, sent.least)

    def explored(self, family: Family, sent: Any, more: Callable[[bool], Any]) -> Explored[StepJudgement] | None:
        """The family as if it had been explored here; `more` gives what is said of it later, waited for where asked."""
        found = sent.explored
        if not isinstance(found, SentExplored):
            return None
        evaluator, lost = self.task.evaluator, found.rejected
        evaluator.evaluated += found.evaluated
        self.provider.asks(found.asked)
        best, rejected = _of(more, lambda said: said.best), _of(more, lambda said: said.rejected)
        return Explored(
            best=None if found.best is None else receive(evaluator, family, found.best, best),
            rejected=None
            if lost is None
            else Rejected(judgement=receive(evaluator, family, lost[0], rejected), reason=lost[1]),
            others=tuple(
                receive(evaluator, family, other, exactly=_of(more, partial(_other, place)))
                for place, other in enumerate(found.others)
            ),
        )

    def tell(self, found: Found[StepJudgement]) -> None:
        """What a document says of what was found here and is not known."""
        lost = len(found.plans)
        asked = [(one, place >= lost) for place, one in enumerate(_shown(found)) if _is_untold(one)]
        if len(asked) >= _FEWEST:
            self.telling.begin([one for one, _ in asked], lambda place: self._sections(*asked[place], explain=0))

    def shown(self, found: Found[StepJudgement]) -> Sequence[Sequence[int]]:
        """Places of the candidates of which a document's sections are not known: plans, then what was rejected."""
        known = self.telling.knows
        unknown = [(place,) for place, one in enumerate(_shown(found)) if _is_untold(one) and not known(one)]
        return unknown if len(unknown) >= _FEWEST else ()

    def told(self, found: Found[StepJudgement], place: int) -> Sections | None:
        """What another process said of one of them; None where none was begun with it."""
        sections: Sections | None = self.telling.of(_shown(found)[place])
        return sections

    def sections(self, found: Found[StepJudgement], place: int, explain: int) -> Sections:
        """What a document says of one of them, in another process."""
        return self._sections(_shown(found)[place], place >= len(found.plans), explain=explain)

    def _sections(self, one: StepJudgement, lost: bool, *, explain: int) -> Sections:
        self.provider.note = _left_undone
        return sections_of(self.task, one, lost=lost, explain=explain)

    def _completed(self, other: StepJudgement) -> StepJudgement:
        """A candidate that may belong to the front, simulated: of those found here none beats it."""
        if any(beats(plan, other) for plan in self._held):
            return other
        exact = self.task.evaluator.simulate(other)
        if exact.verdict == "fits":
            self._held.append(exact)
        return replace(other, exact=exact)

    def more(self, family: Family) -> SentSections | None:
        """What a document says of the candidates of a family that was explored by this process."""
        explored = self._explored_here.get(family)
        if explored is None:
            return None
        best, rejected, exact = explored.best, explored.rejected, [other.exact for other in explored.others]
        return SentSections(
            best=None if best is None else sections_of(self.task, best, lost=False),
            rejected=None if rejected is None else sections_of(self.task, rejected.judgement, lost=True),
            others=tuple(
                sections_of(self.task, one, lost=False) if isinstance(one, StepJudgement) and self._leads(one) else None
                for one in exact
            ),
        )

    def _leads(self, one: StepJudgement) -> bool:
        """Whether it may belong to the front: what it loses to here beats it everywhere."""
        return one.verdict == "fits" and not any(beats(plan, one) for plan in self._held if plan is not one)


def _of(more: Callable[[bool], Any], which: Callable[[SentSections], Sections | None]) -> Shown:
    """What is said of one candidate of a family, from what is said of them all."""

    def shown(wait: bool) -> Sections | None:
        said = more(wait)
        return which(said) if isinstance(said, SentSections) else None

    return shown


def _other(place: int, said: SentSections) -> Sections | None:
    return said.others[place]


def _shown(found: Found[StepJudgement]) -> list[StepJudgement]:
    return [*found.plans, *(lost.judgement for lost in found.rejected)]


def _is_untold(one: StepJudgement) -> bool:
    """Whether it is of this process, and a document says what takes time."""
    return one.shown is None and not one.states_only


def elsewhere_of(task: object, telling: Telling) -> TrainingElsewhere | None:
    """Of a training job of one model by name; None of others, which are not begun elsewhere."""
    if not isinstance(task, TrainingTask) or type(task.evaluator) is not Evaluator:
        return None
    provider = task.evaluator.provider
    return TrainingElsewhere(task, provider, telling) if isinstance(provider, TraceProvider) else None


def _left_undone(_: str) -> NoReturn:
    raise LeftUndoneError
