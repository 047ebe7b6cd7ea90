"""Repeated blocks run only a few times: the rest are passed through, and tiled back in afterwards.

Adding a block to a stack of equal ones inserts one contiguous stretch in forward and one in backward. So of a
run of equal units (a unit is one block, or the repeating pattern of several kinds) four are run for real, two on
either side of those left out; `expand` proves that the inner two are alike and copies one of them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

EXECUTED_UNITS = 4
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
    """Units in the run; the first two and the last two are executed."""

    def blocks(self, unit: int) -> range:
        """Block indices of one unit."""
        first = self.start + unit * self.period
        return range(first, first + self.period)

    def skipped_blocks(self) -> range:
        """Block indices that are not executed."""
        return range(self.start + 2 * self.period, self.start + (self.units - 2) * self.period)


def find_folds(list_name: str, signatures: Sequence[Hashable]) -> list[Fold]:
    """Runs of at least five equal units in a list of blocks, longest saving first at each position."""
    folds: list[Fold] = []
    position = 0
    while position < len(signatures):
        best: Fold | None = None
        for period in range(1, _LONGEST_PERIOD + 1):
            units = _repeats(signatures, position, period)
            if units <= EXECUTED_UNITS:
                continue
            saved = (units - EXECUTED_UNITS) * period
            if best is None or saved > (best.units - EXECUTED_UNITS) * best.period:
                best = Fold(list_name=list_name, start=position, period=period, units=units)
        if best is None:
            position += 1
        else:
            folds.append(best)
            position += best.period * best.units
    return folds


def _repeats(signatures: Sequence[Hashable], start: int, period: int) -> int:
    unit = list(signatures[start : start + period])
    units = 0
    position = start
    while len(unit) == period and list(signatures[position : position + period]) == unit:
        units += 1
        position += period
    return units
