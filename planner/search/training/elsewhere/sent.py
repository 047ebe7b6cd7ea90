"""A judged candidate as it goes from one process to another: its figures, without the stream that they were read off.

What is not sent is worked out anew where somebody asks: the whole candidate is then judged here, to the same figures.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from gpu_plan.planner.memory.lead.pace import Paces
from gpu_plan.planner.memory.profile import MemoryProfile
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.device_use import Simulated
from gpu_plan.planner.search.shown.sections import Sections
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.whole import leaves_room
from gpu_plan.planner.search.training.widths.arithmetic import spared_beside_copies
from gpu_plan.planner.speed.model import StepTime

_MADE_HERE = frozenset(
    {"family", "profile", "timed", "paces", "spared", "roomy", "planned", "simulated", "piped", "exact", "shown"}
)
"""Parts of a judgement that hold a stream, or work something out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentJudgement:
    """One candidate of a family that both processes know."""

    values: dict[str, Any]
    """Parts of the judgement that are values, by name."""
    peak_allocated_bytes: int
    simulated: dict[str, Any] | None
    """What the allocator says, but for its extremes; None where it was not simulated."""
    time: dict[str, Any] | None
    """Its step's time, as far as that is values; None of what model states alone rule out."""
    absent: frozenset[str]
    """What of its time is not known."""
    corners: tuple[float, ...] | None
    """Of its time; None where nobody asks, or they are not known."""
    exact: "SentJudgement | None" = None
    """The same with its allocator simulated; None where it was not."""


def send(judgement: StepJudgement, *, compared: bool) -> SentJudgement:
    """Its figures; with `compared` also what tells whether it ties with others."""
    time = None if judgement.states_only else judgement.time
    simulated = judgement.simulated
    corners = time.corners if time is not None and compared else None
    return SentJudgement(
        values={one.name: getattr(judgement, one.name) for one in fields(judgement) if one.name not in _MADE_HERE},
        peak_allocated_bytes=judgement.profile.peak_allocated_bytes,
        simulated=None if simulated is None else _values(simulated),
        time=None if time is None else _values(time),
        absent=frozenset() if time is None else frozenset(name for name in _LATER if getattr(time, name) is None),
        corners=None if corners is None else corners(),
        exact=send(judgement.exact, compared=True) if isinstance(judgement.exact, StepJudgement) else None,
    )


def _values(made: Any) -> dict[str, Any]:
    known = {one.name: getattr(made, one.name) for one in fields(made)}
    return {name: value for name, value in known.items() if not callable(value)}


_LATER = ("corners", "degrees", "scaling", "trace")
"""Parts of a step's time that are worked out when they are asked for."""


Shown = Callable[[bool], Sections | None]
"""What a document says of a candidate, waited for where that is asked."""


def receive(
    evaluator: Evaluator, family: Family, sent: SentJudgement, shown: Shown | None = None, exactly: Shown | None = None
) -> StepJudgement:
    """The candidate as if it had been judged here; `exactly` is of the same with its allocator simulated."""
    batch: Batch = sent.values["batch"]

    def paces() -> Paces | None:
        again = whole().paces
        return None if again is None else again()

    @cache
    def whole() -> StepJudgement:
        if sent.time is None:
            return evaluator.judge_states(family, batch)
        judged = evaluator.judge_uncounted(family, batch)
        return judged if sent.simulated is None else evaluator.simulate(judged)

    return StepJudgement(
        family=family,
        profile=MemoryProfile(
            peak_allocated_bytes=sent.peak_allocated_bytes, details=lambda: whole().profile.details()
        ),
        timed=cache(lambda: whole().time if sent.time is None else _time(sent, whole)),
        paces=paces,
        spared=cache(lambda: spared_beside_copies(evaluator, family, batch)),
        roomy=cache(lambda: leaves_room(evaluator, family, batch)),
        planned=lambda: whole().plan,
        simulated=None if sent.simulated is None else _simulated(sent.simulated, whole),
        exact=None if sent.exact is None else receive(evaluator, family, sent.exact, exactly),
        shown=shown,
        **sent.values,
    )


def _simulated(values: dict[str, Any], whole: Callable[[], StepJudgement]) -> Simulated:
    def extremes() -> tuple[int, int]:
        again = whole().simulated
        if again is None or again.extremes is None:
            return values["reserved_bytes"], values["reserved_bytes"]
        return again.extremes()

    return Simulated(**{**values, "extremes": extremes if values.get("caches", True) else None})


def _time(sent: SentJudgement, whole: Callable[[], StepJudgement]) -> StepTime:
    assert sent.time is not None

    def later(name: str) -> Callable[..., Any] | None:
        if name in sent.absent:
            return None
        if name == "corners" and sent.corners is not None:
            return lambda: sent.corners
        return lambda *given: getattr(whole().time, name)(*given)

    values: dict[str, Any] = {**sent.time, **{name: later(name) for name in _LATER}}
    return StepTime(ends=lambda: whole().time.ends(), **values)
