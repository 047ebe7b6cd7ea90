"""A planner process of the explorer: reads asks on stdin, writes replies on stdout.   I/O

`python -m gpu_plan.tui.engine.child replay` evaluates single configurations and never imports torch; `search` traces
and runs whole searches. Whatever else is written to stdout goes to stderr, which the explorer keeps for its messages.
"""

import os
import queue
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from gpu_plan.planner.errors import PlanError
from gpu_plan.planner.plan.drawn.lanes import lanes_of
from gpu_plan.tui.engine.breaks import Breaks, StaleError
from gpu_plan.tui.engine.evaluations import Evaluations
from gpu_plan.tui.engine.kept.providers import UntracedError
from gpu_plan.tui.engine.messages import Ahead, AnyParcel, Ask, Reply, read, write
from gpu_plan.tui.pauses import Settled, clear_up, without_pauses

if TYPE_CHECKING:
    from gpu_plan.planner.options.request import Request


class Inbox:
    """Asks as they come; of each kind only the newest counts."""

    def __init__(self, stream: BinaryIO, arrived: Callable[[], None]) -> None:
        self._queue: queue.Queue[object] = queue.Queue()
        self._newest: dict[str, int] = {}
        self._arrived = arrived
        threading.Thread(target=self._fill, args=(stream,), daemon=True).start()

    def _fill(self, stream: BinaryIO) -> None:
        while (message := read(stream)) is not None:
            if isinstance(message, Ask):
                self._newest[message.kind] = message.number
                # A trace is waited for: the search comes again behind it.
                if message.kind == "trace":
                    self._newest["search"] = message.number
            elif isinstance(message, Ahead) and message.wanted != self._newest.get("picture"):
                self._newest["picture"] = message.number  # Whatever was asked for before has been left.
            self._queue.put(message)
            self._arrived()
        self._queue.put(None)
        self._arrived()

    def take(self, idle: Callable[[], None] = lambda: None) -> object:
        """The next message; `idle` is called once where none comes for a while."""
        try:
            return self._queue.get(timeout=_WHILE)
        except queue.Empty:
            idle()
        return self._queue.get()

    @property
    def waits(self) -> bool:
        """Whether something is to be taken."""
        return not self._queue.empty()

    def is_stale(self, ask: Ask) -> bool:
        return self._newest.get(ask.kind, ask.number) > ask.number


Send = Callable[[Reply], None]

_WHILE = 1.0
"""Seconds without a message after which nobody waits."""
_SWITCH = 0.0005
"""Seconds that the thread which reads waits for the one that works: a key would wait ten times as long by default."""
_STEPS_BACK = 10
"""How far a search stands back where processors are few: the picture and the screen go first."""


class ReplayWorker:
    """Pictures, tensors and steps from kept traces; while nothing is asked, pictures of what may be asked next."""

    def __init__(self, send: Send, inbox: Inbox, breaks: Breaks) -> None:
        self._send, self._inbox, self._breaks = send, inbox, breaks
        self._evaluations = Evaluations(kept_alone=True, breakable=breaks.breakable)
        self._ahead: deque[tuple[Request, bool]] = deque()
        self._to_prepare: deque[Request] = deque()
        self._preparing: Iterator[None] = iter(())
        self._simulated: set[str] = set()

    def take(self, message: AnyParcel | Ahead) -> None:
        if isinstance(message, Ahead):
            self._ahead = deque((request, False) for request in message.rough)
            self._ahead.extend((request, True) for request in message.exact)
            self._to_prepare = deque(message.prepared)
            self._simulated.clear()
        else:
            self._evaluations.take(message)

    def answer(self, ask: Ask) -> None:
        if ask.kind == "picture":
            self._ahead.clear()  # What comes next, comes after another state.
            self._to_prepare.clear()
        try:
            replays = self._evaluations.of(ask.request)
            if ask.kind == "tensors":
                self._send(Reply(number=ask.number, kind="tensors", tensors=replays.tensors(ask.request)))
                return
            if ask.kind == "lanes":
                self._send(Reply(number=ask.number, kind="lanes", lanes=replays.lanes(ask.request)))
                return
            for picture in replays.pictures(ask.request):
                self._send(Reply(number=ask.number, kind="picture", picture=picture))
                if self._inbox.is_stale(ask):
                    return
                self._breaks.let_go()
        except UntracedError:
            self._send(Reply(number=ask.number, kind="untraced"))

    def rest(self) -> None:
        """Behind a piece of work."""
        clear_up(young=True)

    def idle(self) -> None:
        """Nobody waits."""
        clear_up()

    def go_ahead(self) -> bool:
        """One picture that nobody has asked for yet, or a piece of what one takes longest for; False where none is
        left. StaleError as soon as one asks."""
        if (not self._ahead or self._ahead[0][1]) and self._prepares():
            return True
        if not self._ahead:
            return False
        request, exact = self._ahead.popleft()
        if request.command in self._simulated:
            return True  # Of a job that has no sums.
        try:
            picture = next(self._evaluations.of(request).pictures(request, "exact" if exact else "first"))
            self._send(Reply(number=0, kind="ahead", picture=picture, of=request.command))
            if picture.exact:
                self._simulated.add(request.command)
        except (UntracedError, PlanError):
            pass  # It is said when it is asked for.
        return True

    def _prepares(self) -> bool:
        """Whether there was a piece: what is begun is gone on with, whatever was asked meanwhile."""
        try:
            if next(self._preparing, self) is None:
                return True
            if self._to_prepare:
                request = self._to_prepare.popleft()
                self._preparing = self._evaluations.of(request).prepared(request)
                return True
        except (UntracedError, PlanError):
            return True  # It is said when it is asked for.
        return False


class SearchWorker:
    """Traces, searches and whole documents."""

    def __init__(self, send: Send, inbox: Inbox, breaks: Breaks) -> None:
        self._send, self._stale = send, inbox.is_stale
        self._evaluations = Evaluations(kept_alone=False)
        self._garbage = Settled()

    def rest(self) -> None:
        """Behind an answer, of which traces stay."""
        self._garbage.clear_up()

    def idle(self) -> None:
        """Nobody waits: all was cleared up behind the answer."""

    def take(self, message: AnyParcel | Ahead) -> None:
        """Nothing: it makes its own."""

    def go_ahead(self) -> bool:
        """Nothing: it costs too much."""
        return False

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
        lanes = () if answer.schedule is None else lanes_of(answer.schedule)
        found = Reply(number=ask.number, kind="found", document=answer.document, timeline=answer.timeline, lanes=lanes)
        self._send(found)


Worker = ReplayWorker | SearchWorker
WORKERS: dict[str, type[ReplayWorker] | type[SearchWorker]] = {"replay": ReplayWorker, "search": SearchWorker}


def serve(kind: str, source: BinaryIO, target: BinaryIO) -> None:
    """Answers until the explorer is gone."""
    breaks = Breaks()
    # A search is broken off between its traces alone: a signal would reach into libraries that do not expect one.
    inbox = Inbox(source, breaks.listen() if kind == "replay" else lambda: None)

    def send(reply: Reply) -> None:
        write(target, reply)

    worker = WORKERS[kind](send, inbox, breaks)
    while True:
        if not inbox.waits and _goes_ahead(worker, inbox, breaks):
            continue
        message = inbox.take(worker.idle)
        if message is None:
            return
        if isinstance(message, AnyParcel | Ahead):
            worker.take(message)
        elif isinstance(message, Ask) and not inbox.is_stale(message):
            breaks.answering(partial(inbox.is_stale, message))
            _answer(worker, message, send, breaks)
            if not inbox.waits:
                breaks.let_go()
                worker.rest()


def _goes_ahead(worker: Worker, inbox: Inbox, breaks: Breaks) -> bool:
    breaks.answering(lambda: inbox.waits)
    try:
        went = worker.go_ahead()
        if went and not inbox.waits:
            worker.rest()
        return went
    except StaleError as stale:
        breaks.keep(stale)
        return True
    except Exception:
        traceback.print_exc()  # It is told when it is asked for.
        return True


def _answer(worker: Worker, ask: Ask, send: Send, breaks: Breaks) -> None:
    try:
        worker.answer(ask)
    except StaleError as stale:
        breaks.keep(stale)
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
    without_pauses()
    sys.setswitchinterval(_SWITCH)
    if sys.argv[1] == "search":
        os.nice(_STEPS_BACK)
    try:
        serve(sys.argv[1], sys.stdin.buffer, target)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  nobody is left to read


if __name__ == "__main__":
    main()
