"""What was recorded of one model, or of one part of it: it outlives the model that it was recorded of."""

import contextlib
from collections.abc import Sequence
from dataclasses import field

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.folding.units import Fold
from gpu_plan.planner.trace.recording.fit import Recording
from gpu_plan.planner.trace.recording.repeats.grown import Grown
from gpu_plan.planner.trace.sizes.errors import NotLinearError
from gpu_plan.planner.trace.sizes.ranges import ranges_for
from gpu_plan.planner.trace.sizes.settled import settled
from gpu_plan.planner.trace.variant import StepVariant

MOST_APART = 40_000
"""Operators of recordings that are kept: some hundred bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A trace through recordings of some micro batches, of which what follows rules is still to be settled."""

    trace: StepTrace
    exact: bool
    """Whether it tells every size between them to the byte."""

    @property
    def samples(self) -> tuple[int, ...]:
        return self.trace.samples

    def tells(self, points: tuple[int, ...]) -> bool:
        """Whether it says what the sizes from the first to the last of them are, be they on one line or not."""
        inside = self.samples[0] <= points[0] and points[-1] <= self.samples[-1]
        return points == self.samples or (self.exact and inside)


@dataclass(slots=True, kw_only=True)
class Recorded:
    """Lines, ranges that break, and recordings that more may be made of."""

    every: int = 1
    """Of so many layers one was checkpointed when blocks that repeat were last looked for."""
    folds: list[Fold] | None = None
    """Runs of equal blocks that are recorded a few times; empty once folding has failed; None: not looked for."""
    notes: list[str] = field(default_factory=list)
    broken: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    apart: dict[tuple[str, int], Recording] = field(default_factory=dict)
    """Recordings of ranges that do not hold together, by variant and size: each stands for itself, or in another; and
    the last of each range that does, with which the next one begins."""
    lines: dict[str, list[Line]] = field(default_factory=dict)
    """What was recorded, by variant."""
    loops: dict[str, bool] = field(default_factory=dict)
    """Whether variants that were asked do something for each sample in turn: no two micro batches have one structure
    then."""
    grown: dict[tuple[str, int], Grown | None] = field(default_factory=dict)
    """Of these, what tells recordings up to a size; None where nothing does."""

    def told(self, variant: StepVariant, ranges: Sequence[tuple[int, ...]]) -> StepTrace | None:
        """The trace over the widest of the ranges that what was recorded tells; None where it tells none."""
        for points in ranges:
            for line in self.lines.get(variant.key(), ()):
                if line.tells(points):
                    with contextlib.suppress(NotLinearError):
                        return settled(line.trace, points)
        return None

    def bends(self, variant: StepVariant, points: tuple[int, ...]) -> bool:
        """Whether a range is known to hold no single line."""
        key = variant.key()
        if len(points) > 1 and self.loops.get(key):
            return True
        return (key, points) in self.broken or any(line.tells(points) for line in self.lines.get(key, ()))

    def at_once(self, variant: StepVariant, micro_batch: int, *, wide: bool) -> StepTrace | None:
        """What `Tracer.trace` would give, where that takes no recording; None where it takes one."""
        ranges = tuple(ranges_for(micro_batch, alone=variant.compilation is not None))
        found = None if wide else self.told(variant, ranges)
        for points in ranges:
            found = found or self.told(variant, (points,))
            if found is not None or not self.bends(variant, points):
                return found
        return None

    def fold_anew(self, folds: list[Fold] | None) -> None:
        """Blocks are left out otherwise from now on: what was recorded without them stands for nothing else."""
        self.folds = folds
        self.apart.clear()
        self.grown.clear()

    def keep_apart(self, variant: StepVariant, recordings: Sequence[Recording]) -> None:
        """The latest of them all, up to as many operators as are worth their memory."""
        self.apart.update({(variant.key(), one.micro_batch): one for one in recordings})
        held = sum(len(one.raw.operators) for one in self.apart.values())
        for key in list(self.apart):
            if held <= MOST_APART:
                break
            held -= len(self.apart.pop(key).raw.operators)
