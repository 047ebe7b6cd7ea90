"""Finds every process of a run by the run id in its environment, and ends them (I/O)."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from gpu_plan.executor.names import RUN_ID


def processes_of(run_id: str, *, without: Iterable[int] = ()) -> list[int]:
    """Pids whose environment carries the run's id, in ascending order; zombies have none any more."""
    left_out = {os.getpid(), *without}
    found = _by_proc(run_id) if Path("/proc/self/environ").exists() else _by_psutil(run_id)
    return sorted(pid for pid in found if pid not in left_out)


def _by_proc(run_id: str) -> list[int]:
    wanted = f"{RUN_ID}={run_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _by_psutil(run_id: str) -> list[int]:
    """Where there is no /proc. Imported here: the guard starts without third-party packages on Linux."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(RUN_ID) == run_id:
                found.append(process.pid)
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Sends a signal to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all(run_id: str, grace: float, *, without: Iterable[int] = ()) -> list[int]:
    """Ends every process of the run: SIGTERM, after `grace` seconds SIGKILL. Gives those that had to be killed."""
    left_out = tuple(without)
    if grace > 0:
        send(processes_of(run_id, without=left_out), signal.SIGTERM)
        until = time.monotonic() + grace
        while time.monotonic() < until:
            if not processes_of(run_id, without=left_out):
                return []
            time.sleep(0.05)
    killed: list[int] = []
    for _ in range(40):
        there = processes_of(run_id, without=left_out)
        if not there:
            break
        killed += [pid for pid in there if pid not in killed]
        send(there, signal.SIGKILL)
        time.sleep(0.05)
        reap(there)
    return killed


def reap(pids: Iterable[int]) -> None:
    """Collects ended processes that were adopted from ended parents. Pids that are no children of ours are passed over.

    Only named pids: the exit status of anybody else's child is not ours to take.
    """
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
