"""Calls worked out side by side in threads: for work outside the interpreter, which lets go of its lock meanwhile."""

from collections.abc import Callable, Sequence
from threading import Lock, Thread, current_thread
from typing import Generic, TypeVar

from gpu_plan.planner.search.aside.allowed import cores

T = TypeVar("T")


class LeftError(Exception):
    """Nobody waits for this any more."""


class Aside(Thread, Generic[T]):
    """A call worked out in a thread of its own while its caller does something else."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._call, self._found, self._fault = call, list[T](), list[Exception]()
        self.left = False
        self.start()

    def run(self) -> None:
        """The call; its fault is the caller's."""
        try:
            self._found.append(self._call())
        except Exception as fault:
            self._fault.append(fault)

    def result(self) -> T:
        """What the call gives, waited for. Raises its fault."""
        self.join()
        if self._fault:
            raise self._fault[0]
        return self._found[0]

    def leave(self) -> None:
        """Nobody waits for it any more: what it has begun is ended, nothing more is begun side by side."""
        self.left = True


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What each call gives, in their order; no thread is left behind. Raises the first fault that any of them had, and
    LeftError in an `Aside` that was left."""
    threads, caller = min(len(calls), cores()), current_thread()
    if threads < 2:
        return [call() for call in calls]
    found: dict[int, T] = {}
    faults: list[Exception] = []
    left, lock = list(enumerate(calls))[::-1], Lock()

    def work() -> None:
        while True:
            with lock:
                if not left or getattr(caller, "left", False):
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
    if len(found) < len(calls):
        raise LeftError
    return [found[at] for at in range(len(calls))]
