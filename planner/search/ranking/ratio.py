"""How many times as long one plan takes as another: rates that both rest on are slow, or fast, for both at once."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """low <= expected <= high."""

    low: float
    expected: float
    high: float


def ratio(one: Sequence[float], other: Sequence[float]) -> Ratio:
    """Of two plans' seconds for one sample: the expected ones first, then those under the same assumptions.

    Each assumption says of the device, of the links between devices and of the host whether it is as slow or as fast
    as was published. Times grow with each of the three in proportion or stay, so the ratio is at its ends where each
    is at one of its own; between, where transfers hide behind computation, it may only be nearer to 1. Where one plan
    is not known apart its expected time stands for all.
    """
    expected = one[0] / other[0]
    if len(one) != len(other):
        return Ratio(low=expected, expected=expected, high=expected)
    ratios = [mine / theirs for mine, theirs in zip(one, other, strict=True)]
    return Ratio(low=min(ratios), expected=expected, high=max(ratios))
