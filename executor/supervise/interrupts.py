"""Signals that end the run: noted by a handler, acted on by the loop (I/O)."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """What has arrived so far."""

    def __init__(self, placed: bool = False) -> None:
        self.handled = (*HANDLED, signal.SIGUSR1) if placed else HANDLED
        self.names: list[str] = []

    @property
    def first(self) -> str | None:
        """Name of the first signal."""
        return self.names[0] if self.names else None

    @property
    def impatient(self) -> bool:
        """Whether another one followed: then nothing is waited for any more."""
        return len(self.names) > 1

    def arrived(self, number: int, frame: FrameType | None = None) -> None:
        """The handler."""
        self.names.append(signal.Signals(number).name)


@contextlib.contextmanager
def interrupts(placed: bool = False) -> Iterator[Interrupts]:
    """Notes signals while the block runs; handlers are put back after it. Outside the main thread none can be set:
    KeyboardInterrupt then is the main thread's own affair. `placed`: SIGUSR1 too, by which an engine says that the
    time is nearly over."""
    noted = Interrupts(placed)
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {number: signal.getsignal(number) for number in noted.handled}
    for number in noted.handled:
        if before[number] is not signal.SIG_IGN or number == signal.SIGTERM:  # nohup's SIGHUP stays ignored
            signal.signal(number, noted.arrived)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
