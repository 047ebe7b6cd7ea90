"""What is known of a search that runs, in words. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import format_gib

if TYPE_CHECKING:
    from gpu_plan.planner.model.spec import ModelSpec
    from gpu_plan.planner.search.judgement import Judgement

_NAMED = 8


def model_words(spec: "ModelSpec") -> str:
    """`gpt2 has 124,439,808 parameters`."""
    trained = "" if spec.trainable_parameters == spec.num_parameters else f", {spec.trainable_parameters:,} trained"
    return f"{spec.id} has {spec.num_parameters:,} parameters{trained}"


def states_words(judged: "Sequence[Judgement]") -> list[str]:
    """What model states alone decide, a line each: what they are held against, what cannot fit, what leaves room."""
    if not judged:
        return []
    lost = sorted((one for one in judged if one.verdict == "no"), key=lambda one: one.least_bytes)
    left = sorted((one for one in judged if one.verdict != "no"), key=lambda one: one.least_bytes)
    lines = [f"model states alone, of {format_gib(judged[0].capacity_bytes)} GiB:"]
    if lost:
        lines.append(f"  cannot fit: {_listed(lost)}")
    if left:
        lines.append(f"  leave room: {_listed(left)}")
    return lines


def _listed(judged: "Sequence[Judgement]") -> str:
    named = [f"{one.title} {format_gib(one.least_bytes)}" for one in judged[:_NAMED]]
    more = len(judged) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])])


@dataclass(slots=True)
class Pace:
    """How far a search is, and how long it has taken."""

    clock: Callable[[], float]
    done: int = 0
    of: int = 0
    """Kinds of plans; 0: not known yet."""
    _began: float = field(init=False)
    _first: tuple[int, float] | None = None
    """How many were done at the end of the first that took its time, and when: imports are behind it."""

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self.clock() - self._began

    def judged(self, place: int) -> None:
        """The kind at `place`, counted from 0, is judged."""
        self.done = place + 1
        if self._first is None:
            self._first = self.done, self.clock()

    @property
    def words(self) -> str:
        """`7 of 20 kinds of plans, 9 s, some 17 s left at this pace`; empty where nothing is counted yet."""
        if not self.of:
            return ""
        words = f"{self.done} of {self.of} kinds of plans, {self.seconds:.0f} s"
        if self._first is None or self.done == self.of or self.done == self._first[0]:
            return words
        pace = (self.clock() - self._first[1]) / (self.done - self._first[0])
        left = round(pace * (self.of - self.done))
        return f"{words}, some {left} s left at this pace" if left else words


def plan_words(best: "Judgement") -> str:
    """`fits: FSDP2, micro batch 2, no checkpointing needs 53.5 GiB, has 79.1; 14.2 samples a second`."""
    from gpu_plan.planner.search.reasons import in_short  # numpy, which a kept plan does without

    return f"{in_short(best)}; {best.samples_per_second:,.3g} samples a second"
