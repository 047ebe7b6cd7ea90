"""The slowest of several devices: those that work together wait for it in every step.

Devices of one kind settle at clocks of their own at the limit of their power, by how each chip turned out and how it is
cooled (arXiv 2208.11035). What bounds memory does not differ: copies keep the memory's clock.
"""

import functools

import numpy as np

from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.speed.model import StepWork
from gpu_plan.planner.speed.operators import BACKWARD, Operators
from gpu_plan.planner.speed.rates import Rate, efficiency_data, is_halved
from gpu_plan.planner.units import median

_SLOW, _MIDDLE, _FAST = 0.9, 0.5, 0.1
"""How many of a hundred draws of devices have none that is slower."""


def slowest_device(gpu: Gpu, count: int) -> Rate:
    """Time that the slowest of `count` devices takes for products and attention, over the median device's, as a
    duration: `slow` is the longest. Exactly 1 where no power limit sets the clock."""
    if gpu.is_cpu or is_halved(gpu):
        return Rate(slow=1.0, expected=1.0, fast=1.0, basis="source", note="")
    slow, expected, fast = (_quantile(share ** (1 / count)) for share in (_SLOW, _MIDDLE, _FAST))
    note = f"products wait for the slowest of {count:,} devices: {expected - 1:.1%} slower than the median one"
    return Rate(slow=slow, expected=expected, fast=fast, basis="source", note=note if count > 1 else "")


def waiting_devices(work: StepWork, world_size: int, operators: Operators) -> int:
    """Devices that wait for each other: all that train one model, and of a pass without gradients those that its
    collectives name."""
    if (operators.phase == BACKWARD).any():
        return world_size
    return max((one.ranks or world_size for one in work.collectives), default=1)


def _quantile(share: float) -> float:
    """Of devices without outliers: what so large a share of them is no slower than."""
    shares, times = _devices()
    return float(np.interp(share, shares, times))


@functools.cache
def _devices() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Shares, and times over the median device's; of several tables the median."""
    rows = efficiency_data()["devices"]
    shares = tuple(share for share, _ in rows[0]["quantiles"])
    return shares, tuple(median(row["quantiles"][at][1] for row in rows) for at in range(len(shares)))
