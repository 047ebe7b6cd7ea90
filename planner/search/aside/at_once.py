"""Calls worked out side by side in threads: for work outside the interpreter, which lets go of its lock meanwhile."""

from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import TypeVar

from gpu_plan.planner.search.aside.allowed import cores

T = TypeVar("T")


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What each call gives, in their order; no thread is left behind. Raises the first fault that any of them had."""
    threads = min(len(calls), cores())
    if threads < 2:
        return [call() for call in calls]
    found: dict[int, T] = {}
    faults: list[Exception] = []
    left, lock = list(enumerate(calls))[::-1], Lock()

    def work() -> None:
        while True:
            with lock:
                if not left:
                    return
                at, call = left.pop()
            try:
                found[at] = call()
            except Exception as fault:
                faults.append(fault)
                end()

    def end() -> None:
        with lock:
            left.clear()

    others = [Thread(target=work, daemon=True) for _ in range(threads - 1)]
    for other in others:
        other.start()
    try:
        work()
    finally:
        end()  # where a newer question broke this off
        for other in others:
            other.join()
    if faults:
        raise faults[0]
    return [found[at] for at in range(len(calls))]
