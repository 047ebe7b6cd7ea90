"""Traces of one model have much in common: what is equal is held once. Pure."""

import weakref
from dataclasses import fields, replace

import numpy as np

from gpu_plan.planner.trace.events import StepTrace

Given = dict[tuple[int, int, int], weakref.ref[StepTrace]]
"""By its numbers of events, tensors and operators, the trace that was given last, as long as somebody holds it."""


def sharing(trace: StepTrace, given: Given) -> StepTrace:
    """The same trace, whose columns and lists are those of the one before where they are equal."""
    counts = trace.num_events, trace.num_tensors, len(trace.op_name)
    before = given[counts]() if counts in given else None
    found = trace if before is None else _sharing(trace, before)
    given[counts] = weakref.ref(found)
    return found


def _sharing(trace: StepTrace, before: StepTrace) -> StepTrace:
    names = [one.name for one in fields(trace)]
    pairs = ((name, getattr(trace, name), getattr(before, name)) for name in names)
    return replace(trace, **{name: theirs for name, mine, theirs in pairs if _alike(mine, theirs)})


def _alike(mine: object, theirs: object) -> bool:
    if isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray):
        return mine.dtype == theirs.dtype and np.array_equal(mine, theirs)
    return isinstance(mine, list) and mine == theirs
