"""How many times as long one plan takes as another: rates that both rest on are slow, or fast, for both at once."""

from collections.abc import Sequence

from gpu_plan.planner.plain.values import dataclass

OFF = 1.12
"""By what factor the ratio of two predicted times is off in nine of ten pairs of published runs that differ in the plan
alone and are expected to be within a tenth of each other, rates and all that both share cancelled: 140 pairs, half of
them within 2.3 % (benchmarks/results/seconds.md, "Ratios")."""


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
    is not known apart its expected time stands for all. What is left beyond the rates is `OFF`.
    """
    expected = one[0] / other[0]
    ratios = [mine / theirs for mine, theirs in zip(one, other, strict=True)] if len(one) == len(other) else [expected]
    return Ratio(low=min(ratios) / OFF, expected=expected, high=max(ratios) * OFF)
