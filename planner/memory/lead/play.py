"""One run of a log, in seconds since its beginning.

`_streams.c` does what `plain` does, number by number (tests/unit/memory/test_compiled_streams.py); a platform without a
compiler takes `plain`.
"""

from collections import deque

import numpy as np

from gpu_plan.planner.memory.lead.compiled import COMPILED, streams
from gpu_plan.planner.memory.lead.log import STREAMS, WIDTHS, Did, Log
from gpu_plan.planner.memory.lead.pace import Pace
from gpu_plan.planner.memory.lead.schedules import ALWAYS
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import FloatArray, IntArray

DEFAULT_STREAM = 0
"""The stream that computes."""
MAX_QUEUED_LAUNCHES = 1024
"""Kernels that can be queued on a device before a launch blocks the host (NVIDIA documents no number; 1024 is what the
CUDA driver has shown since Fermi)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """What each launch and each collective of a log takes."""

    kernels: IntArray
    """Launched so far, by launch."""
    issue: FloatArray
    """Of the host, for the kernels since the launch before."""
    run: FloatArray
    """Of the device, for them."""
    hooks: FloatArray
    """Of the host, for each collective."""
    sent: FloatArray
    """Of each collective itself."""


Run = tuple[FloatArray, IntArray, FloatArray]
"""When each block that waits is done; the moment behind its free; when the host reaches each moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """Kernels up to each launch of a log, and none before it, in whole passes."""

    upto: IntArray
    passes: IntArray
    rest: IntArray
    """Of the pass that is under way."""


def launched(log: Log, kernels: int) -> Launched:
    """By passes of so many kernels: the same at every pace."""
    upto = np.zeros(len(log.launches) + 1, dtype=np.int64)
    np.maximum.accumulate(np.asarray(log.launches, dtype=np.int64), out=upto[1:])
    passes, rest = np.divmod(upto, kernels)
    return Launched(upto=upto, passes=passes, rest=rest)


def played(log: Log, pace: Pace, *, limited: bool, by: Launched | None = None) -> Run:
    """`limited`: whether the host waits where it is not known whether its code holds it; `by`: its launches, where
    they are told already."""
    seconds = seconds_of(log, pace, by)
    return _compiled(log, seconds, limited=limited) if COMPILED else plain(log, seconds, limited=limited)


def seconds_of(log: Log, pace: Pace, by: Launched | None = None) -> Seconds:
    """What a log takes at a pace."""
    by = by or launched(log, len(pace.host))
    issue, run = (np.diff(_cumulated(of_each, by)) for of_each in (pace.host, pace.device))
    sent = np.asarray(log.sent, dtype=np.int64).reshape(-1, 3)
    of_messages = np.asarray([pace.sent(what, nbytes) for what, nbytes in log.messages], dtype=np.float64)
    hooks = np.asarray(pace.hook * sent[:, 1 + pace.many_hooks], dtype=np.float64)
    return Seconds(kernels=by.upto[1:], issue=issue, run=run, hooks=hooks, sent=of_messages[sent[:, 0]])


def _cumulated(of_each: FloatArray, by: Launched) -> FloatArray:
    """Seconds of so many kernels, pass after pass."""
    cumulated = np.concatenate([[0.0], np.cumsum(of_each)])
    found: FloatArray = by.passes * cumulated[-1] + cumulated[by.rest]
    return found


def _compiled(log: Log, seconds: Seconds, *, limited: bool) -> Run:
    done, after, reached = np.empty(log.frees), np.empty(log.frees, dtype=np.int64), np.empty(log.moments)
    columns = (seconds.kernels, seconds.issue, seconds.run, seconds.hooks, seconds.sent)
    arrays = (np.asarray(log.entries, dtype=np.int64), *map(np.ascontiguousarray, columns), done, after, reached)
    streams.play(*arrays, log.works, MAX_QUEUED_LAUNCHES, limited)
    return done, after, reached


def plain(log: Log, seconds: Seconds, *, limited: bool) -> Run:
    """In Python: one loop, for it goes over tens of thousands of entries, four times for a plan."""
    done: list[float] = []
    after: list[int] = []
    reached: list[float] = []
    host = 0.0
    streams = [0.0] * STREAMS  # when what is queued on each so far is done
    works = [0.0] * (log.works + 1)
    queue: deque[tuple[int, float]] = deque([(0, 0.0)])
    columns = (seconds.kernels, seconds.issue, seconds.run)
    launches = zip(*(column.tolist() for column in columns), strict=True)
    sends = zip(seconds.hooks.tolist(), seconds.sent.tolist(), strict=True)
    entries, at = log.entries.tolist(), 0
    while at < len(entries):
        did = entries[at]
        entry = entries[at : at + WIDTHS[did]]
        at += WIDTHS[did]
        if did == Did.LAUNCHED:
            kernels, issue, run = next(launches)
            if kernels > queue[-1][0]:
                host += issue
                if run:
                    streams[DEFAULT_STREAM] = max(streams[DEFAULT_STREAM] + run, host)
                queue.append((kernels, streams[DEFAULT_STREAM]))
            else:  # what is queued behind the same kernels is done no sooner
                queue[-1] = kernels, streams[DEFAULT_STREAM]
            while queue[0][0] <= kernels - MAX_QUEUED_LAUNCHES:
                host = max(host, queue.popleft()[1])
            reached.append(host)
        elif did == Did.WAITED:
            _, work, waiter, on = entry
            works[work] = max(streams[on], host)
            streams[waiter] = max(streams[waiter], works[work])
        elif did == Did.SENT:
            hooks, sent = next(sends)
            host += hooks
            streams[entry[1]] = max(streams[entry[1]], host) + sent
        elif did == Did.HOST_WAITED:
            if entry[1] & ALWAYS or limited:
                host = max(host, works[entry[2]])
            reached.append(host)
        else:
            works[entry[1]] = max(streams[entry[2]], host)
            if did == Did.FREED:
                done.append(works[entry[1]])
                after.append(len(reached))
    return np.asarray(done), np.asarray(after, dtype=np.int64), np.asarray(reached)


__all__ = [
    "DEFAULT_STREAM",
    "MAX_QUEUED_LAUNCHES",
    "Launched",
    "Run",
    "Seconds",
    "launched",
    "plain",
    "played",
    "seconds_of",
]
