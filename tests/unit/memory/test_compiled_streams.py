"""The compiled loops over a rank's streams do what those in Python do, number by number."""

from array import array
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.memory.lead import play as module
from gpu_plan.planner.memory.lead import until as known
from gpu_plan.planner.memory.lead.compiled import COMPILED
from gpu_plan.planner.memory.lead.log import STREAMS, Did, Log
from gpu_plan.planner.memory.lead.pace import Pace
from gpu_plan.planner.memory.schedule import LIMITED, MAX_QUEUED_LAUNCHES, RUNS_AHEAD, DeviceStreams, Event, Schedule
from gpu_plan.planner.trace.events import IntArray
from tests.unit.memory.test_host_lead import pace

needs_loop = pytest.mark.skipif(not COMPILED, reason="built without a compiler")

STREAM = st.integers(0, STREAMS - 1)
ACTS = st.one_of(
    st.tuples(st.just("launch"), st.integers(0, 700)),
    st.tuples(st.sampled_from(["record", "free"]), STREAM),
    st.tuples(st.just("wait"), STREAM, STREAM),
    st.tuples(st.just("send"), STREAM, st.integers(1, 3), st.integers(0, 4)),
    st.tuples(st.just("host"), st.integers(0, 50), st.booleans()),
    st.tuples(st.just("limit"), st.integers(0, 50), st.integers(0, 50)),
)
SECONDS = st.sampled_from([0.0, 1e-6, 0.1, 0.3, 7.7])


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """What a strategy could queue."""
    streams, events, kernels = DeviceStreams(), list[Event](), 0
    for number, (act, *told) in enumerate(draw(st.lists(ACTS, max_size=120))):
        moment = (number, 0)
        if act == "launch":
            kernels += told[0]
            streams.launched(kernels, moment)
        elif act == "record":
            events.append(streams.record(told[0]))
        elif act == "free":
            streams.free(told[0])
        elif act == "wait":
            streams.wait(*told)
        elif act == "send":
            streams.send(told[0], "all_gather", told[1], (told[2], told[2] + 2))
        elif events:
            event = events[told[0] % len(events)]
            if act == "limit":
                streams.host_waits(event, moment, (Schedule.QUEUED,), behind=events[told[1] % len(events)])
            else:
                streams.host_waits(event, moment, RUNS_AHEAD if told[1] else LIMITED)
    return streams.log


def paces() -> st.SearchStrategy[Pace]:
    return st.builds(
        lambda host, device, gather, hook: pace(host, device, gather=gather, hook=hook),
        SECONDS, SECONDS, SECONDS, SECONDS,
    )  # fmt: skip


@needs_loop
@settings(max_examples=200, deadline=None)
@given(logs(), paces(), st.booleans())
def test_equal_number_by_number(log: Log, used: Pace, limited: bool) -> None:
    compiled = module.played(log, used, limited=limited)
    plain = module.plain(log, module.seconds_of(log, used), limited=limited)
    for one, other in zip(compiled, plain, strict=True):
        assert np.array_equal(one, other)


@needs_loop
@settings(max_examples=300, deadline=None)
@given(logs())
def test_what_the_host_knows_is_equal_number_by_number(log: Log) -> None:
    assert np.array_equal(known.until(log), known.plain(log))


@pytest.mark.parametrize("find", [known.plain, pytest.param(known.until, marks=needs_loop)])
def test_a_full_queue_says_what_stands_behind_its_oldest_launch(find: Callable[[Log], IntArray]) -> None:
    streams = DeviceStreams()
    for moment, kernels in enumerate((1, 2, 1 + MAX_QUEUED_LAUNCHES, 2 + MAX_QUEUED_LAUNCHES)):
        streams.launched(kernels, (moment, 0))
        streams.free(0)
    assert find(streams.log).tolist() == [[3, known.NEVER, known.NEVER, known.NEVER]] * len(RUNS_AHEAD)


@needs_loop
@pytest.mark.parametrize(
    "entries", [[9], [-1], [1, 1], [1, 5, 0], [2, 1, 0, STREAMS], [4, 0], [0], [5, 1, 7, 0], [5, 1, 0, 7]]
)
def test_a_log_that_does_not_hold_together_is_refused(entries: list[int]) -> None:
    log = Log(entries=array("q", entries), works=1)
    with pytest.raises(ValueError, match="hold together"):
        module.played(log, pace(1.0, 1.0), limited=True)
    if entries[0] != Did.SENT:  # of what is sent code alone says nothing
        with pytest.raises(ValueError, match="hold together"):
            known.until(log)


def test_an_empty_log_is_over_at_once() -> None:
    done, after, reached = module.played(Log(), pace(1.0, 1.0), limited=True)
    assert len(done) == len(after) == len(reached) == 0
