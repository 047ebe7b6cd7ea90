"""A planner process of the explorer: reads asks on stdin, writes replies on stdout.   I/O

`python -m tui.engine.child replay` evaluates single configurations and never imports torch; `search` traces and runs
whole searches. Whatever else is written to stdout goes to stderr, which the explorer keeps for its messages.
"""

import gc
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import BinaryIO

from planner.errors import PlanError
from tui.engine.evaluations import Evaluations
from tui.engine.messages import AnyParcel, Ask, Reply, read, write
from tui.engine.providers import UntracedError


class StaleError(Exception):
    """Nobody waits for this answer any more."""


class Inbox:
    """Asks as they come; of each kind only the newest counts."""

    def __init__(self, stream: BinaryIO) -> None:
        self._queue: queue.Queue[object] = queue.Queue()
        self._newest: dict[str, int] = {}
        threading.Thread(target=self._fill, args=(stream,), daemon=True).start()

    def _fill(self, stream: BinaryIO) -> None:
        while (message := read(stream)) is not None:
            if isinstance(message, Ask):
                self._newest[message.kind] = message.number
                # A trace is waited for: the search comes again behind it.
                if message.kind == "trace":
                    self._newest["search"] = message.number
            self._queue.put(message)
        self._queue.put(None)

    def take(self) -> object:
        return self._queue.get()

    def is_stale(self, ask: Ask) -> bool:
        return self._newest.get(ask.kind, ask.number) > ask.number


Send = Callable[[Reply], None]


class ReplayWorker:
    """Pictures and tensors from kept traces."""

    def __init__(self, send: Send, stale: Callable[[Ask], bool]) -> None:
        self._send, self._stale = send, stale
        self._evaluations = Evaluations(kept_alone=True)

    def take(self, parcel: AnyParcel) -> None:
        self._evaluations.take(parcel)

    def answer(self, ask: Ask) -> None:
        try:
            replays = self._evaluations.of(ask.request)
            if ask.kind == "tensors":
                self._send(Reply(number=ask.number, kind="tensors", tensors=replays.tensors(ask.request)))
                return
            for picture in replays.pictures(ask.request):
                self._send(Reply(number=ask.number, kind="picture", picture=picture))
                if self._stale(ask):
                    return
        except UntracedError:
            self._send(Reply(number=ask.number, kind="untraced"))


class SearchWorker:
    """Traces, searches and whole documents."""

    def __init__(self, send: Send, stale: Callable[[Ask], bool]) -> None:
        self._send, self._stale = send, stale
        self._evaluations = Evaluations(kept_alone=False)

    def take(self, parcel: AnyParcel) -> None:
        """Nothing: it makes its own."""

    def answer(self, ask: Ask) -> None:
        def check() -> None:
            if self._stale(ask):
                raise StaleError

        def note(text: str) -> None:
            check()
            self._send(Reply(number=ask.number, kind="progress", text=text))

        if ask.kind == "trace":
            parcel = self._evaluations.of(ask.request).parcel(ask.request, note, check)
            self._send(Reply(number=ask.number, kind="traced", parcel=parcel))
            return
        answer = self._evaluations.run(ask.request, note, check)
        self._send(Reply(number=ask.number, kind="found", document=answer.document, timeline=answer.timeline))


WORKERS: dict[str, type[ReplayWorker] | type[SearchWorker]] = {"replay": ReplayWorker, "search": SearchWorker}


def serve(kind: str, source: BinaryIO, target: BinaryIO) -> None:
    """Answers until the explorer is gone."""
    inbox = Inbox(source)

    def send(reply: Reply) -> None:
        write(target, reply)

    worker = WORKERS[kind](send, inbox.is_stale)
    while (message := inbox.take()) is not None:
        if isinstance(message, AnyParcel):
            worker.take(message)
        elif isinstance(message, Ask) and not inbox.is_stale(message):
            _answer(worker, message, send)


def _answer(worker: ReplayWorker | SearchWorker, ask: Ask, send: Send) -> None:
    try:
        worker.answer(ask)
    except StaleError:
        return
    except PlanError as problem:
        send(Reply(number=ask.number, kind="refused", text=str(problem)))
    except MemoryError:
        send(Reply(number=ask.number, kind="broken", text="this machine has no memory left to evaluate that"))
    except Exception as fault:
        traceback.print_exc()
        send(Reply(number=ask.number, kind="broken", text=f"{type(fault).__name__}: {fault}"))


def main() -> None:
    """Entry of the process."""
    # Libraries that print must neither break the stream of replies nor the explorer's screen.
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # What imports leave behind never becomes garbage: walking it would only add pauses.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    try:
        serve(sys.argv[1], sys.stdin.buffer, target)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  nobody is left to read


if __name__ == "__main__":
    main()
