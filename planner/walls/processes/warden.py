"""The process in front of the walls: waits for what stands behind, ends with it, and ends all that is left (I/O)."""

import contextlib
import os
import signal
import time
from types import FrameType

from gpu_plan.planner.walls.kernel import control
from gpu_plan.planner.walls.namespaces import exit_code
from gpu_plan.planner.walls.processes.tree import descendants

_DEATH_SIGNAL, _ADOPT = 1, 36
_PAUSE = 0.01
"""Seconds until it is looked again who is left."""


def stand_guard() -> None:
    """Before anything is started: what loses its parent comes to this process, and with its own parent it ends."""
    signal.signal(signal.SIGTERM, _end)
    control(_DEATH_SIGNAL, signal.SIGTERM)
    control(_ADOPT, 1)


def guard(child: int) -> None:
    """Waits for `child` and leaves with its exit code. Never returns."""
    while True:
        process, status = os.wait()
        if process == child:
            end_all()
            os._exit(exit_code(status))


def leave_guard() -> None:
    """In the child: what `stand_guard` set is the warden's alone."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    control(_DEATH_SIGNAL, signal.SIGKILL)


def end_all() -> None:
    """Ends all that this process has started, and what that has started. Whoever forks meanwhile is found again: it is
    never waited for one process, which may be one that nobody has ended yet."""
    me = os.getpid()
    while found := descendants(me):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_PAUSE)


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_all()
    os._exit(128 + number)
