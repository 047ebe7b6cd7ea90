"""Where an attempt stands before its first step, and where its time went. Pure.

Each phase ends when the last rank has come so far: the job is no further.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpu_plan.executor.records.run import FIRST_STEP, Phase

LAUNCHER, IMPORTING, PREPARING, STEPS, ENDING = "launcher", "importing torch", "preparing", "steps", "ending"
WORDS = {
    LAUNCHER: "starting the launcher",
    IMPORTING: "ranks started, importing torch",
    PREPARING: "torch imported; the script prepares its model and data",
    FIRST_STEP: "first step begun",
}
PRESENT = {
    LAUNCHER: "starting the launcher",
    IMPORTING: "importing torch",
    PREPARING: "preparing the script's model and data",
    FIRST_STEP: "in the first step",
}
_BORDERS = ((LAUNCHER, "started"), (IMPORTING, "torch"), (PREPARING, "training"), (FIRST_STEP, "first_step"))
"""A phase, and the moment that ends it."""


class Placed(Protocol):
    """A rank's record or pulse."""

    @property
    def started(self) -> float:
        """Seconds since the epoch."""

    @property
    def updated(self) -> float:
        """Seconds since the epoch."""

    @property
    def moments(self) -> Mapping[str, float]:
        """See `RankRecord.moments`."""


def present(ranks: Sequence[Placed], expected: int) -> str:
    """The phase in which an attempt of `expected` ranks is; `steps` after the first one."""
    for name, moment in _BORDERS:
        if len(ranks) < expected or any(_at(rank, moment) is None for rank in ranks):
            return name
    return STEPS


def phases(began: float, ranks: Sequence[Placed], expected: int, ended: float | None = None) -> tuple[Phase, ...]:
    """The attempt's phases in their order, from `began` to `ended`; one that is not over is left out."""
    found: list[Phase] = []
    last = began
    for name, moment in _BORDERS:
        times = [_at(rank, moment) for rank in ranks]
        known = [time for time in times if time is not None]
        if len(known) < max(1, expected):
            return tuple(found)
        found.append(Phase(name=name, seconds=max(0.0, max(known) - last)))
        last = max(last, *known)
    if ended is not None:
        worked = min(ended, max(last, *(rank.updated for rank in ranks)))
        found += [Phase(name=STEPS, seconds=worked - last), Phase(name=ENDING, seconds=ended - worked)]
    return tuple(found)


def _at(rank: Placed, moment: str) -> float | None:
    return rank.started if moment == "started" else rank.moments.get(moment)
