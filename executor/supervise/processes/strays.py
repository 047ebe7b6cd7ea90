"""Every process of a run, whatever it did to its environment, session or parents, and its end (I/O).

A process belongs to a run when it descends from the run's keeper, which adopts what its own parents leave behind, or
when the run's id stands in its environment. What the user declared to live on does not belong: a process that was
started with GPU_PLAN_DAEMON=1, or whose program is named by `--leave-running`, and what it starts.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpu_plan.executor.names import DAEMON, RUN_ID
from gpu_plan.executor.supervise.processes import tree

_ROUNDS = 400
"""Each kills all that is there: what forks faster than that cannot be ended from outside."""


@dataclass(slots=True, kw_only=True)
class Members:
    """The processes of one launch."""

    run_id: str
    keeper: int | None = None
    """Whose descendants belong to the run; itself it does not."""
    leave: tuple[str, ...] = ()
    """Names of programs that the user wants to live on."""
    _known: dict[int, int] = field(default_factory=dict)
    """When each process that was seen below the keeper had begun: should the keeper be killed, they are known still."""

    def pids(self, *, without: Iterable[int] = ()) -> list[int]:
        """All that run now, in ascending order; what has ended and waits for its parent is left out."""
        processes = tree.table()
        mine = self._below(processes) | _named(self.run_id, processes)
        out = {os.getpid(), *without} | ({self.keeper} if self.keeper is not None else set())
        return sorted(pid for pid in mine - self._left(mine, processes) - out if not processes[pid].ended)

    def follow(self) -> list[int]:
        """Those below the keeper, remembered. Cheaper than `pids`: no environment is read."""
        return sorted(self._below(tree.table()))

    def _below(self, processes: dict[int, tree.Process]) -> set[int]:
        known = {pid for pid, begun in self._known.items() if pid in processes and processes[pid].begun == begun}
        roots = known | ({self.keeper} if self.keeper is not None else set())
        found = known | tree.below(roots, processes)
        self._known = {pid: processes[pid].begun for pid in found}
        return found

    def _left(self, mine: Iterable[int], processes: dict[int, tree.Process]) -> set[int]:
        word = f"{DAEMON}=1".encode()
        wanted = set(self.leave)
        heads = {pid for pid in mine if word in tree.environment(pid) or (wanted and wanted & tree.names(pid))}
        return heads | tree.below(heads, processes)

    def end_all(self, grace: float, *, without: Iterable[int] = ()) -> list[int]:
        """Ends every process: SIGTERM, after `grace` seconds SIGKILL. Gives those that had to be killed."""
        left_out = tuple(without)
        if grace > 0:
            send(self.pids(without=left_out), signal.SIGTERM)
            until = time.monotonic() + grace
            while time.monotonic() < until:
                if not self.pids(without=left_out):
                    return []
                time.sleep(0.05)
        killed: dict[int, None] = {}
        for turn in range(_ROUNDS):
            there = self.pids(without=left_out)
            if not there:
                break
            if turn:  # what begets faster than it is killed stands still first
                send(there, signal.SIGSTOP)
            send(there, signal.SIGKILL)
            reap(there)
            killed |= dict.fromkeys(there)
            time.sleep(0.01)
        return list(killed)


def _named(run_id: str, processes: Iterable[int]) -> set[int]:
    if tree.PROC.joinpath("self", "environ").exists():
        word = f"{RUN_ID}={run_id}".encode()
        return {pid for pid in processes if word in tree.environment(pid)}
    return set(_by_psutil(run_id))


def _by_psutil(run_id: str) -> list[int]:
    """Where there is no /proc. Imported here: the keeper starts without third-party packages on Linux."""
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


def reap(pids: Iterable[int]) -> None:
    """Collects ended processes that were adopted from ended parents. Pids that are no children of ours are passed over.

    Only named pids: the exit status of anybody else's child is not ours to take.
    """
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
