"""Calls side by side in threads: in order, each once, no thread left, the fault of one told."""

import threading

import pytest

from gpu_plan.planner.search.aside.allowed import CORES
from gpu_plan.planner.search.aside.at_once import Aside, LeftError, at_once


@pytest.mark.parametrize("cores", ["1", "2", "8"])
def test_answers_come_in_the_order_of_the_calls(monkeypatch: pytest.MonkeyPatch, cores: str) -> None:
    monkeypatch.setenv(CORES, cores)
    before, made = threading.active_count(), []

    def call(number: int) -> int:
        made.append(number)
        return number * number

    assert at_once([lambda number=number: call(number) for number in range(20)]) == [n * n for n in range(20)]
    assert sorted(made) == list(range(20))
    assert threading.active_count() == before
    assert at_once([]) == []


@pytest.mark.parametrize("cores", ["1", "2"])
def test_a_fault_of_one_is_that_of_all(monkeypatch: pytest.MonkeyPatch, cores: str) -> None:
    monkeypatch.setenv(CORES, cores)

    def fails() -> int:
        raise ValueError("tensor 3 is not alive")

    with pytest.raises(ValueError, match="tensor 3"):
        at_once([lambda: 1, fails, lambda: 2])


def test_no_thread_is_left_where_the_work_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a newer question in the explorer does: no `Exception`, and raised in the thread that asked."""
    monkeypatch.setenv(CORES, "2")
    before, asked = threading.active_count(), threading.Event()

    class LeftError(BaseException):
        pass

    def call() -> None:
        if threading.current_thread() is threading.main_thread():
            asked.set()
            raise LeftError
        asked.wait(60)

    with pytest.raises(LeftError):
        at_once([call] * 10)
    assert threading.active_count() == before


def test_what_is_worked_out_aside_is_waited_for_and_its_fault_told() -> None:
    begun, go = threading.Event(), threading.Event()

    def call() -> int:
        begun.set()
        assert go.wait(10)
        return 7

    aside = Aside(call)
    assert begun.wait(10), "it runs while its caller does something else"
    go.set()
    assert aside.result() == aside.result() == 7

    def fails() -> int:
        raise ValueError("tensor 3 is not alive")

    with pytest.raises(ValueError, match="tensor 3"):
        Aside(fails).result()


def test_what_was_left_begins_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES, "2")
    begun, go, made = threading.Barrier(3), threading.Event(), list[int]()

    def call(number: int) -> int:
        begun.wait(10)
        assert go.wait(10)
        made.append(number)
        return number

    aside = Aside(lambda: at_once([lambda number=number: call(number) for number in range(20)]))
    begun.wait(10)
    aside.leave()
    go.set()
    with pytest.raises(LeftError):
        aside.result()
    assert len(made) == 2, "those that ran already"
