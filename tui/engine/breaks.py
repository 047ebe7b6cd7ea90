"""Ends the work on an older question at once when a newer one comes in.   I/O"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StaleError(BaseException):
    """Nobody waits for this answer any more. No `Exception`: no `except` on the way may take it for a fault."""


class Breaks:
    """Raises `StaleError` in the main thread while it does breakable work on a question that has gone stale."""

    def __init__(self) -> None:
        self._stale: Callable[[], bool] = lambda: False
        self._open = False
        self._left: list[StaleError] = []

    def keep(self, stale: StaleError) -> None:
        """What was broken off, with all that it had made so far: letting go of a hundred thousand values takes time,
        which the newer question does not wait for."""
        self._left.append(stale)

    def let_go(self) -> None:
        """Nobody waits."""
        self._left.clear()

    def listen(self) -> Callable[[], None]:
        """From now on what is given here, called by the thread that reads, says that something came in."""
        signal.signal(signal.SIGUSR1, lambda *_: self._check())
        main = threading.get_ident()
        return lambda: signal.pthread_kill(main, signal.SIGUSR1)

    def answering(self, stale: Callable[[], bool]) -> None:
        """The question that is worked on from now on, and whether it has gone stale."""
        self._stale = stale

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Around work that keeps nothing half done."""
        self._open = True
        try:
            self._check()
            yield
        finally:
            self._open = False

    def _check(self) -> None:
        if self._open and self._stale():
            # Closed first: what is raised inside a `finally` would leave it open.
            self._open = False
            raise StaleError
