"""Parts that are done beside a process: what they come to never depends on who did them, or on who was first."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from gpu_plan.planner.search.aside import allowed, forked
from gpu_plan.planner.search.aside.forked import Aside, LeftUndoneError, beside
from tests.support.workers import ended, taken

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is forked elsewhere")
PARTS = range(20)
GROUPS = [[part] for part in PARTS]


@pytest.fixture(params=[1, 3])
def forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Workers, whatever this test's own process holds."""
    monkeypatch.setattr(forked, "workers", lambda: request.param)
    return request.param


def all_of(work: Callable[[int], object], *, first: Callable[[Aside], None] = lambda _: None) -> list[object]:
    with beside(GROUPS, work) as aside:
        first(aside)
        return [aside.answer(part) for part in PARTS]


def test_workers_do_all_that_is_not_asked_for_before(forks):
    assert all_of(lambda part: (part, os.getpid() != me), first=ended) == [(part, True) for part in PARTS]


me = os.getpid()


def test_what_is_done_here_is_left_alone(forks):
    answers = all_of(lambda part: part * part)
    assert all(answer in (None, part * part) for part, answer in zip(PARTS, answers, strict=True))


def test_a_part_is_done_here_once_it_was_asked_for(forks):
    with beside(GROUPS, lambda part: time.sleep(0.01) or part) as aside:
        mine = [part for part in PARTS if aside.answer(part) is None]
        ended(aside)
        assert all(aside.answer(part) is None for part in mine)


def test_answers_larger_than_a_pipe_come_whole(forks):
    assert [len(one) for one in all_of(lambda part: bytes([part]) * 3_000_000, first=ended)] == [3_000_000] * 20


def fails(part: int) -> int:
    if part % 3 == 0:
        raise ValueError(part)
    if part % 3 == 1:
        raise LeftUndoneError
    return part


def test_what_fails_or_is_left_undone_is_done_here(forks):
    assert all_of(fails, first=ended) == [part if part % 3 == 2 else None for part in PARTS]


def test_what_cannot_be_sent_is_done_here(forks):
    assert all_of(lambda part: lambda: part, first=ended) == [None] * 20


def test_what_a_dead_worker_left_is_done_here(forks):
    def dies(part: int) -> int:
        if part == 15:
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    answers = all_of(dies, first=ended)
    assert answers[15] is None
    assert answers[16:] == [16, 17, 18, 19]


def test_no_process_is_left(forks):
    with beside(GROUPS, time.sleep) as aside:
        processes = [worker.process for worker in aside._workers]
        assert len(processes) == forks
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_none_is_left_where_it_is_interrupted(forks):
    processes: list[int] = []

    def interrupted() -> None:
        with beside(GROUPS, time.sleep) as aside:
            processes.extend(worker.process for worker in aside._workers)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert processes
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_worker_outlives_an_interrupt_of_the_terminal(forks):
    def interrupted(part: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return part

    assert all_of(interrupted, first=ended) == list(PARTS)


def test_a_worker_keeps_no_stream_open(forks):
    found = all_of(lambda part: [os.readlink(f"/proc/self/fd/{stream}") for stream in range(3)], first=ended)
    assert found == [[os.devnull] * 3] * 20


def test_nothing_is_forked_where_the_system_refuses(monkeypatch):
    def refused() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(forked, "workers", lambda: 1)
    monkeypatch.setattr(os, "fork", refused)
    assert all_of(lambda part: part) == [None] * 20


def test_a_group_is_done_by_one_process(forks):
    """What its first part leaves behind serves the others; parts of several groups may stand between each other."""
    groups = [[0, 2, 4], [1, 3, 5], [6, 7], [8, 10, 12], [9, 11, 13]]
    with beside(groups, lambda part: os.getpid()) as aside:
        ended(aside)
        who = [{aside.answer(part) for part in group} for group in groups]
    assert all(len(processes) == 1 for processes in who)
    assert {None, me}.isdisjoint(set.union(*who))


def test_the_rest_of_a_group_is_done_where_its_first_part_is(forks):
    with beside([[0, 2], [1, 3]], lambda part: time.sleep(0.2) or part) as aside:
        assert aside.answer(0) is None
        ended(aside)
        assert [aside.answer(part) for part in (1, 2, 3)] == [1, None, 3]


def test_more_is_said_of_what_was_done_there_alone(forks):
    with beside(GROUPS, lambda part: time.sleep(0.02) or part, lambda part: -part) as aside:
        mine = [part for part in PARTS[:3] if aside.answer(part) is None]
        aside.finish()
        assert [aside.more(part) for part in PARTS] == [None if part in mine else -part for part in PARTS]
        assert [aside.more(part, wait=False) for part in PARTS[3:]] == [-part for part in PARTS[3:]]


def test_more_is_waited_for_where_that_is_asked(forks):
    with beside([[0], [1]], lambda part: part, lambda part: time.sleep(0.2) or "more") as aside:
        taken(aside, 1)
        assert aside.answer(1) == 1
        assert aside.more(1, wait=False) is None
        assert aside.more(1) == "more"


def test_a_dead_worker_says_no_more(forks):
    with beside([[0], [1]], lambda part: part, lambda part: os._exit(1)) as aside:
        taken(aside, 1)
        assert aside.answer(1) == 1
        assert aside.more(1) is None


def test_one_part_is_not_worth_a_process(forks):
    with beside([[4]], lambda part: part) as aside:
        assert aside.answer(4) is None
        assert aside.answer(400) is None


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process in which nothing is in the way, on eight cores."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(allowed, "threads", lambda: [threading.current_thread()])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv(allowed.CORES, raising=False)
    return monkeypatch


def test_three_work_beside_one_at_most(free):
    assert allowed.workers() == 3


@pytest.mark.parametrize(("given", "found"), [("1", 0), ("0", 0), ("2", 1), ("99", 3), ("many", 3), ("", 3), ("-1", 3)])
def test_cores_may_be_said(free, given, found):
    free.setenv(allowed.CORES, given)
    assert allowed.workers() == found


def test_one_core_works_alone(free):
    free.setattr(os, "sched_getaffinity", lambda _: {3})
    assert allowed.workers() == 0


def test_nothing_is_forked_beside_torch(free):
    free.setitem(sys.modules, "torch", threading)
    assert allowed.workers() == 0


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_nothing_is_forked_on_other_systems(free, platform):
    free.setattr(sys, "platform", platform)
    assert allowed.workers() == 0


def test_nothing_is_forked_among_threads(free):
    free.setattr(allowed, "threads", lambda: [threading.current_thread(), threading.Thread()])
    assert allowed.workers() == 0


def test_what_draws_progress_is_no_obstacle(free):
    from rich.live import Live, _RefreshThread

    free.setattr(allowed, "threads", lambda: [threading.current_thread(), _RefreshThread(Live(), 4)])
    assert allowed.workers() == 3
