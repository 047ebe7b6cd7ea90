"""Repeated blocks run only a few times: the rest are passed through, and tiled back in afterwards.

Adding a block to a stack of equal ones inserts one contiguous stretch in forward and one in backward. So of a
run of equal units (a unit is one block, or the repeating pattern of several kinds) two are run for real, one on either
side of those left out, and beyond each a block of the same run, since what a unit takes and hands on is its
neighbours'; `expand` proves that the two are alike and copies one of them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

EXECUTED_UNITS = 4
"""The two ends of a run among them."""
_LONGEST_PERIOD = 16


class CannotFoldError(Exception):
    """The blocks are not alike in a way that folding understands; the step is traced in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One run of equal units inside a list of blocks."""

    list_name: str
    """Qualified name of the module list, `model.layers`."""
    start: int
    """Index of the first block of the run."""
    period: int
    """Blocks per unit."""
    units: int
    """Units in the run, its ends counted; the first two and the last two are executed."""
    ends: int = 0
    """Blocks of the first and of the last unit; 0: as many as of the others."""

    @property
    def end_blocks(self) -> int:
        """Blocks at either end."""
        return self.ends or self.period

    @property
    def length(self) -> int:
        """Blocks of the run."""
        return (self.units - 2) * self.period + 2 * self.end_blocks

    def blocks(self, unit: int) -> range:
        """Block indices of one unit."""
        if unit == 0:
            return range(self.start, self.start + self.end_blocks)
        first = self.start + self.end_blocks + (unit - 1) * self.period
        return range(first, first + (self.end_blocks if unit == self.units - 1 else self.period))

    def skipped_blocks(self) -> range:
        """Block indices that are not executed."""
        return range(self.blocks(2).start, self.blocks(self.units - 2).start)


def find_folds(list_name: str, signatures: Sequence[Hashable], *, whole_ends: bool = False) -> list[Fold]:
    """Runs of repeating blocks in a list that together leave out the most, in order.

    Ends are one block each, or units of their own with `whole_ends`: for blocks that hold what one farther than the
    next has made.
    """
    count = len(signatures)
    saved = [0] * (count + 1)
    chosen: list[Fold | None] = [None] * (count + 1)
    for position in range(count - 1, -1, -1):
        saved[position] = saved[position + 1]
        for period in range(1, _LONGEST_PERIOD + 1):
            fold = _longest(list_name, signatures, position, period, period if whole_ends else 1)
            if fold is None:
                continue
            together = len(fold.skipped_blocks()) + saved[position + fold.length]
            if together > saved[position] or (together == saved[position] and chosen[position] is None):
                saved[position], chosen[position] = together, fold
    folds: list[Fold] = []
    position = 0
    while position < count:
        best = chosen[position]
        if best is None:
            position += 1
        else:
            folds.append(best)
            position += best.length
    return folds


def _longest(list_name: str, signatures: Sequence[Hashable], start: int, period: int, ends: int) -> Fold | None:
    """The longest run from `start` on with this period; None where nothing of it could be left out."""
    blocks = period
    while start + blocks < len(signatures) and signatures[start + blocks] == signatures[start + blocks - period]:
        blocks += 1
    units = (blocks - 2 * ends) // period + 2
    if units <= EXECUTED_UNITS or start + blocks > len(signatures):
        return None
    return Fold(list_name=list_name, start=start, period=period, units=units, ends=ends)
