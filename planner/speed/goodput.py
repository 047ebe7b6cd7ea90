"""What checkpoints and failures take from a long job on many devices.

Failures are counted in device-hours between two of them, as published of long runs. A checkpoint is written as often as
costs least (Young 1974: the root of twice its time times the time between failures); a failure costs half an interval,
and the restart.
"""

import math

from gpu_plan.planner.hardware.disk import NVME_RANGE
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import median

HOURS_BETWEEN_FAILURES = (
    (16_384 * 54 * 24 / 419, "Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 H100 (arXiv 2407.21783)"),
    (384 * 7 * 24 / 1.5, "BLOOM: one or two GPU failures a week on 384 A100 (arXiv 2211.05100)"),
)
"""Device-hours between two failures, and whose."""
RESTART_SECONDS = 600.0
"""From a failure to the first step after it: noticed, nodes exchanged, processes and collectives set up; assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What is added to the hours of a job without any failure."""

    failures: float
    checkpoint_every_seconds: float
    checkpoint_hours: float
    lost_hours: float
    """Steps that are run again."""
    restart_hours: float

    @property
    def hours(self) -> float:
        return self.checkpoint_hours + self.lost_hours + self.restart_hours


def goodput(*, hours: float, devices: int, nodes: int, checkpoint_bytes: int) -> Goodput:
    """Of a job of `hours` without failures; checkpoints are written by all nodes at once, each to its own share."""
    writing = max(1e-3, checkpoint_bytes / (nodes * NVME_RANGE[1]))
    between = median(known for known, _ in HOURS_BETWEEN_FAILURES) * 3600 / devices
    # A job that ends before that writes one checkpoint, its last.
    every = min(max(writing, math.sqrt(2 * writing * between)), hours * 3600)
    seconds = hours * 3600
    failures = seconds / between
    return Goodput(
        failures=failures,
        checkpoint_every_seconds=every,
        checkpoint_hours=max(1.0, seconds / every) * writing / 3600,
        lost_hours=failures * every / 2 / 3600,
        restart_hours=failures * RESTART_SECONDS / 3600,
    )
