"""How far the host is ahead of the device, in seconds: blocks of ten kernels that wait, by who is the slower."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu_plan.planner.memory.lead.history import History
from gpu_plan.planner.memory.lead.pace import Pace, Paces
from gpu_plan.planner.memory.schedule import (
    DEFAULT_STREAM,
    LIMITED,
    MAX_QUEUED_LAUNCHES,
    RUNS_AHEAD,
    DeviceStreams,
    Event,
    Freed,
)

BLOCKS, KERNELS = 12, 10
GATHERING = 1


def pace(host: float, device: float, *, kernels: int = KERNELS, gather: float = 0.0, hook: float = 0.0) -> Pace:
    """Seconds of one kernel on both, of a collective, and of one operator of its hooks."""
    return Pace(
        host=np.full(kernels, host),
        device=np.full(kernels, device),
        hook=hook,
        many_hooks=False,
        sent=lambda what, nbytes: gather,
    )


def _history(streams: DeviceStreams, places: dict[int, int], moments: NDArray[np.int64], events: int) -> History:
    """`places`: event of each free that waits, by its number; `moments` as events."""
    freed = np.full(streams.log.frees, -1)
    freed[list(places)] = list(places.values())
    return History(log=streams.log, freed=freed, moments=np.append(moments, events))


def history(before: Callable[[DeviceStreams, int], None] = lambda streams, block: None) -> History:
    """Twelve blocks of ten kernels; each frees what it used at its end, as events 0 to 11 of as many.

    `before` is what is queued ahead of a block.
    """
    streams = DeviceStreams()
    freed: list[Freed] = []
    events: list[int] = []
    for block in range(BLOCKS):
        known = len(streams.moments)
        before(streams, block)
        events += [block] * (len(streams.moments) - known)
        streams.launched((block + 1) * KERNELS, (block, 0))
        events.append(block)
        freed.append(streams.free(DEFAULT_STREAM))
    places = {number: block for block, number in enumerate(freed)}
    return _history(streams, places, np.asarray(events, dtype=np.int64), BLOCKS)


def returns(found: History, used: Pace, *, limited: bool = True) -> list[int]:
    return found.returns(used, BLOCKS, limited=limited).tolist()


def test_a_host_that_is_slower_is_never_ahead() -> None:
    """A block is done when the next one has been issued."""
    assert returns(history(), pace(host=2.0, device=1.0)) == [*range(1, BLOCKS), BLOCKS]


def test_a_host_that_is_twice_as_fast_is_ahead_by_as_many_blocks_as_it_has_issued() -> None:
    """Block k is done after 20 (k + 1) seconds, when the host has just issued block 2 k + 1."""
    found = returns(history(), pace(host=1.0, device=2.0))
    assert found[:6] == [1, 3, 5, 7, 9, 11]
    assert set(found[6:]) == {BLOCKS}


def test_the_queue_of_launches_holds_the_fastest_host() -> None:
    many = history()
    slow = Pace(
        host=np.full(KERNELS, 0.0), device=np.full(KERNELS, 1.0), hook=0.0, many_hooks=False, sent=lambda what, n: 0.0
    )
    assert returns(many, slow) == [BLOCKS] * BLOCKS
    streams = DeviceStreams()
    streams.launched(1, (0, 0))
    freed = streams.free(DEFAULT_STREAM)
    streams.launched(2, (1, 0))
    streams.launched(1 + MAX_QUEUED_LAUNCHES, (2, 0))
    held = _history(streams, {freed: 0}, np.arange(3), 3)
    assert held.returns(slow, 3, limited=True).tolist() == [2, 1, 2]


def test_where_the_host_waits_it_finds_done_what_it_waited_for() -> None:
    """It waits for the end of the block before the one before: two blocks stand."""
    events: list[Event] = []

    def limit(streams: DeviceStreams, block: int) -> None:
        if block > 1:
            streams.host_waits(events[block - 2], (block, 0), RUNS_AHEAD)
        events.append(streams.record(DEFAULT_STREAM))

    found = history(limit)
    assert returns(found, pace(host=0.0, device=1.0))[:3] == [3, 4, 5]


@pytest.mark.parametrize(("limited", "expected"), [(True, 3), (False, BLOCKS)])
def test_a_wait_that_may_not_hold_counts_for_the_least_alone(limited: bool, expected: int) -> None:
    events: list[Event] = []

    def limit(streams: DeviceStreams, block: int) -> None:
        if block > 1:
            streams.host_waits(events[block - 2], (block, 0), LIMITED)
        events.append(streams.record(DEFAULT_STREAM))

    found = history(limit)
    assert returns(found, pace(host=0.0, device=1.0), limited=limited)[0] == expected


def test_slow_links_hold_the_computation_and_hooks_hold_the_host() -> None:
    """Each block waits for a gather of 100 seconds, ten times as long as it runs itself."""

    def gather(streams: DeviceStreams, block: int) -> None:
        streams.send(GATHERING, "all_gather", 1, (5, 5))
        streams.wait(DEFAULT_STREAM, GATHERING)

    found = history(gather)
    assert returns(found, pace(host=1.0, device=1.0)) == [*range(1, BLOCKS), BLOCKS]
    assert returns(found, pace(host=1.0, device=1.0, gather=100.0))[0] > 1
    assert returns(found, pace(host=1.0, device=2.0, hook=2.0)) == [*range(1, BLOCKS), BLOCKS]


def test_other_schedules_stay_between_the_two_that_are_possible() -> None:
    found = history()
    slow, fast = (pace(host=2.0, device=1.0),), (pace(host=1.0, device=2.0),)
    never = np.full(BLOCKS, BLOCKS)
    at_once = np.arange(BLOCKS)
    least, most, late, soon = found.possible(Paces(least=slow, most=fast), never, [never, at_once])
    assert (least <= most).all()
    assert (late == most).all()
    assert (soon == least).all()
    limited = found.possible(Paces(least=fast, most=fast), at_once, [never])
    assert all((one == at_once).all() for one in limited), "code alone is the limit where it waits sooner"


def test_events_that_stand_before_move_what_comes_back() -> None:
    moved = history().behind(5).returns(pace(host=2.0, device=1.0), BLOCKS + 5, limited=True)
    assert moved.tolist() == [*range(5), *range(6, BLOCKS + 5), BLOCKS + 5]
