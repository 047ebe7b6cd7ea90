"""Calls side by side in threads: in order, each once, no thread left, the fault of one told."""

import threading

import pytest

from gpu_plan.planner.search.aside.allowed import CORES
from gpu_plan.planner.search.aside.at_once import at_once


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
