"""Numbered parts of some work, done here and by forked processes that take them from the other end (I/O).

Parts come in groups, which one process does: what it keeps of the first serves the others. Whoever is first with a
group does it; what its parts come to is the same, so that nothing depends on who was. A worker that ends, or that
leaves a part undone, leaves it to this process. Of what a worker does beside its answers nothing is seen:
it writes nothing, shows nothing and takes no signal of the terminal.
"""

import gc
import mmap
import os
import pickle
import select
import signal
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from fcntl import fcntl
from typing import Any, NoReturn

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.search.aside.allowed import workers

_HEAD = struct.Struct("<IQ")
"""Before each answer: which part, and its bytes; no bytes where it was left undone."""
_MORE = 1 << 31
"""Added to a part's number: what is said of it when all parts are done."""
_PIPE = 1 << 20
"""Bytes that a worker may be ahead of whoever reads; as many as Linux gives everybody (pipe-max-size)."""
_SET_SIZE = 1031
"""F_SETPIPE_SZ (linux/fcntl.h)."""
_HERE = 255
"""In the table of claims, a byte for each group: this process does it. A worker's claim is its number from 1, 0 is
nobody's."""
_PATIENT = 10
"""Steps of `nice`: it takes a tenth of what others take of a core that they want too."""


_Work = tuple[Callable[[int], object], Callable[[int], object] | None]
"""What is done of each part, and of those that were done when none is left."""


class LeftUndoneError(BaseException):
    """Raised by work that another process is not to do: whatever it shows or makes has to be shown and made here."""


@dataclass(slots=True)
class _Worker:
    process: int
    pipe: int
    """To read from; -1 when it has been closed."""
    unread: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Aside:
    """Parts that may be done elsewhere."""

    _claims: mmap.mmap | None = None
    _groups: dict[int, int] = field(default_factory=dict)
    """Of each part."""
    _workers: list[_Worker] = field(default_factory=list)
    _answers: dict[int, bytes] = field(default_factory=dict)
    _owner: int = field(default_factory=os.getpid)
    """Who reads: a process that was forked from that one later has no part in it."""

    def answer(self, part: int) -> Any:
        """What a worker makes of a part, waited for where one is at it; None: it is to be done here."""
        group = self._groups.get(part)
        if self._claims is None or group is None or os.getpid() != self._owner:
            return None
        for worker in self._workers:
            self._read(worker, wait=False)
        claim = self._claims[group]
        if claim == 0:
            self._claims[group] = _HERE
        elif claim != _HERE:
            worker = self._workers[claim - 1]
            while part not in self._answers and worker.pipe >= 0:
                self._read(worker, wait=True)
        content = self._answers.pop(part, b"")
        return pickle.loads(content) if content else None

    def more(self, part: int, *, wait: bool = True) -> Any:
        """What a worker says of a part that it did when all were done; None where it says nothing, or where that has
        not come and nobody waits for it."""
        for worker in self._workers if wait and os.getpid() == self._owner else ():
            while part + _MORE not in self._answers and worker.pipe >= 0:
                self._read(worker, wait=True)
        content = self._answers.get(part + _MORE, b"")
        return pickle.loads(content) if content else None

    def finish(self) -> None:
        """Waits until every worker has said all that it says."""
        for worker in self._workers:
            while worker.pipe >= 0:
                self._read(worker, wait=True)

    def _read(self, worker: _Worker, *, wait: bool) -> None:
        """Takes in what has come."""
        while worker.pipe >= 0 and (wait or _has_come(worker.pipe)):
            content = os.read(worker.pipe, _PIPE)
            if not content:
                os.close(worker.pipe)
                worker.pipe = -1
            worker.unread += content
            wait = False
        while len(worker.unread) >= _HEAD.size:
            part, size = _HEAD.unpack_from(worker.unread)
            end = _HEAD.size + size
            if len(worker.unread) < end:
                break
            self._answers[part] = bytes(worker.unread[_HEAD.size : end])
            del worker.unread[:end]

    def close(self) -> None:
        """No worker is left."""
        for worker in self._workers:
            if worker.pipe >= 0:
                os.close(worker.pipe)
            # Where somebody else waits for every child of this process, it is gone already.
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(worker.process, signal.SIGKILL)
                os.waitpid(worker.process, 0)
        self._workers.clear()
        self._claims = None


@contextmanager
def beside(
    groups: Sequence[Sequence[int]],
    work: Callable[[int], object],
    more: Callable[[int], object] | None = None,
    *,
    patient: bool = False,
) -> Iterator[Aside]:
    """`work` of each part of `groups`, its answers pickled, begun from their end while this process begins at their
    front. A worker goes on with `more` of the parts that it did, when none is left. `patient` ones leave the cores to
    whoever wants them.

    Nothing is forked for a single group, or where `allowed` says so. On leaving every worker is ended.
    """
    found = Aside()
    try:
        if len(groups) > 1:
            _fork(found, groups, (work, more), min(workers(), len(groups) - 1), patient=patient)
        yield found
    finally:
        found.close()


def _has_come(pipe: int) -> bool:
    poll = select.poll()  # `select.select` refuses what is opened behind a thousand others
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(0))


def _fork(found: Aside, groups: Sequence[Sequence[int]], work: _Work, count: int, *, patient: bool) -> None:
    if count < 1:
        return
    claims = mmap.mmap(-1, len(groups))
    found._claims = claims
    found._groups = {part: number for number, group in enumerate(groups) for part in group}
    backwards = list(reversed(list(enumerate(groups))))
    for number in range(count):
        begins = number * len(backwards) // count
        try:
            reads, writes = os.pipe()
            with warnings.catch_warnings():
                # Python 3.12 warns of threads: numpy's own, which are made anew in a child (OpenBLAS: blas_server.c).
                warnings.simplefilter("ignore", DeprecationWarning)
                process = os.fork()
        except OSError:  # no more processes or files are allowed: this one does it all
            return
        if process == 0:
            os.nice(_PATIENT if patient else 0)
            _work((*backwards[begins:], *backwards[:begins]), work, claims, number + 1, writes)
        os.close(writes)
        found._workers.append(_Worker(process=process, pipe=reads))


def _work(
    groups: Sequence[tuple[int, Sequence[int]]],
    work: _Work,
    claims: mmap.mmap,
    number: int,
    pipe: int,
) -> NoReturn:
    """A worker's life."""
    done: list[int] = []
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells what is known, and ends its workers
        _silent()
        gc.disable()
        with suppress(OSError):  # of the user's allowance nothing is left: it waits for its reader more often
            fcntl(pipe, _SET_SIZE, _PIPE)
        for place, group in groups:
            if claims[place]:
                continue
            claims[place] = number
            for part in group:
                _write(pipe, part, _made(work[0], part))
            done += group
        if work[1] is not None:
            for part in done:
                _write(pipe, part + _MORE, _made(work[1], part))
    finally:
        os._exit(0)


def _silent() -> None:
    """Nothing is read or written, and whoever waits for the end of this process's parent waits for that alone."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)


def _made(work: Callable[[int], object], part: int) -> bytes:
    """The answer; empty where the work was left undone or ended in an error, which this process's parent then meets."""
    try:
        made = work(part)
        return b"" if made is None else pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
    except (LeftUndoneError, Exception):
        return b""


def _write(pipe: int, part: int, content: bytes) -> None:
    left = memoryview(_HEAD.pack(part, len(content)) + content)
    while left:
        left = left[os.write(pipe, left) :]
