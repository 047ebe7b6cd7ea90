"""Moments of a run: segments, places inside them, passes, phases."""

from enum import StrEnum
from typing import NewType

from gpu_plan.planner.plain.values import dataclass


class Phase(StrEnum):
    """Where in the run a moment lies."""

    LOAD = "load"
    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "optimizer step"
    PREFILL = "prefill"
    DECODE = "decode"
    EVALUATION = "evaluation"
    ROLLOUT = "rollout"
    SCORING = "log-probabilities"
    REWARDS = "rewards"
    SYNC = "weight sync"
    INFERENCE = "inference"
    """A forward pass of one of several models."""
    UPDATE = "update"
    """An iteration of another model than the one that is searched."""


TRAINING_PHASES = (Phase.LOAD, Phase.FORWARD, Phase.BACKWARD, Phase.STEP)


Point = NewType("Point", int)
"""A moment: segment of the run and place inside it, in one number. Thousands are made for a rank, and sorted."""

SEGMENT = 1 << 40
"""More than the places of a segment."""


def point(segment: int, key: int) -> Point:
    """A place inside a segment; places just before its first event are negative."""
    return Point(segment * SEGMENT + key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One micro step inside the run."""

    segment: int
    iteration: int
    micro_step: int
    last: bool
    """Whether gradients are reduced after it (the last micro step of an accumulation)."""
