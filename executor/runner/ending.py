"""How a rank begins and ends as a process: it dies with its launcher, says so when told to end, and leaves cleanly."""

import atexit
import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_plan.executor.names import LOGS_FOLDER, RUN_ID
from gpu_plan.executor.runner.failure import user_frames

_PR_SET_PDEATHSIG = 1
_TRIES = 3


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its launcher dies, and ends it if the launcher is gone already.

    Without it a SIGKILL of the launcher leaves the ranks running.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent or _orphaned(parent):
        os._exit(128 + signal.SIGKILL)


def _orphaned(parent: int) -> bool:
    """Whether the agent that started this rank died before `prctl`: the adopting process knows nothing of the run."""
    run_id = os.environ.get(RUN_ID)
    if not run_id or "TORCHELASTIC_RUN_ID" not in os.environ:
        return False
    try:
        environment = Path(f"/proc/{parent}/environ").read_bytes()
    except OSError:
        return parent == 1
    return f"{RUN_ID}={run_id}".encode() not in environment


def dump_stacks_on_signal(folder: Path | None, rank: int) -> None:
    """Native crashes print their stacks to stderr; SIGUSR1 writes all threads' to `logs/rank-N.stacks`."""
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
        faulthandler.enable(all_threads=True)
    if folder is None:
        return
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        logs = folder / LOGS_FOLDER
        logs.mkdir(exist_ok=True)
        file = (logs / f"rank-{rank}.stacks").open("a")  # held open: a handler can open nothing
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True, chain=False)


class Termination:
    """SIGTERM ends a rank at once, as it would without us, but its record says so before.

    Python runs signal handlers between bytecodes of the main thread, which a collective can hold for ever: the byte
    that the interpreter's C handler writes wakes a thread of ours instead.
    """

    def __init__(self, interrupted: Callable[[], None]) -> None:
        self._interrupted = interrupted
        self._once = threading.Lock()

    def install(self) -> None:
        """In the main thread, before the script runs; a handler that the script installs later takes our place."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.signal(signal.SIGTERM, self._handle)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), name="plan-signals", daemon=True).start()
        # A forked worker shares the pipe: its signals must not end the rank, not even in the moment of its birth.
        os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=self._forget)

    def _forget(self) -> None:
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _release()

    def _watch(self, reader: int) -> None:
        while True:
            received = os.read(reader, 1)
            if received == bytes([signal.SIGTERM]) and signal.getsignal(signal.SIGTERM) == self._handle:
                self._end()

    def _handle(self, number: int, frame: object) -> None:
        self._end()

    def _end(self) -> None:
        if not self._once.acquire(blocking=False):
            time.sleep(5)  # the other thread is writing the record and will end the process
        for _ in range(_TRIES):
            with contextlib.suppress(Exception):  # the main thread may change what is being written
                self._interrupted()
                break
        libc: Any = ctypes.CDLL(None)
        libc.signal(int(signal.SIGTERM), 0)  # signal.signal works in the main thread only
        os.kill(os.getpid(), signal.SIGTERM)


def _hold() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


class Departure:
    """The very last exit function: where gloo's threads would abort a finished process, it leaves before they can."""

    def __init__(self) -> None:
        self.code = 0
        self.abrupt = False
        """Whether to skip the destructors of native libraries."""
        self._pid = os.getpid()

    def install(self) -> None:
        """Before the script runs: exit functions run last in, first out."""
        atexit.register(self._leave)

    def _leave(self) -> None:
        if not self.abrupt or os.getpid() != self._pid:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(self.code)


def write_elastic_error(error: BaseException) -> None:
    """torchrun's `error.json` for a script whose main is not decorated with `@record`.

    Same content as torch.distributed.elastic's ErrorHandler.record_exception; a file that exists is left alone.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or isinstance(error, SystemExit):
        return
    message = {
        "message": f"{type(error).__name__}: {error}",
        "extraInfo": {
            "py_callstack": "".join(traceback.format_exception(type(error), error, user_frames(error.__traceback__))),
            "timestamp": str(int(time.time())),
        },
    }
    with contextlib.suppress(OSError), open(path, "x", encoding="utf-8") as file:
        json.dump({"message": message}, file)
