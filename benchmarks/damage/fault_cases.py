"""Faults beyond those of checkpoints and random kills: what is injected, and how the run must end."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.executor.supervise.limits import Limits
from tests.support.fault_runs import IMPATIENT, QUICK, steps_done, wait_until

BEFORE = Limits(hang=12.0, hang_first=45.0, end=6.0, peers=6.0, stacks=1.0, hang_busy=4.0)
"""As a user's figure bounds a hang before the first step."""
AGAIN = ("--steps", "8", "--save-every", "2")
ANY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run with one fault."""

    fault: str
    arguments: tuple[str, ...]
    causes: tuple[str, ...]
    code: int
    culprit: int | None = None
    """Of the first attempt; `ANY`: not judged."""
    says: str = ""
    """What its explanation holds."""
    processes: int = 2
    strategy: str = "ddp"
    lean: bool = True
    restarts: int = 0
    limits: Limits = QUICK
    inject: Callable[[RunFolder], None] | None = None


def fault(kind: str, when: str = "step", rank: str = "1", *more: str) -> tuple[str, ...]:
    return ("--fault", kind, "--when", when, "--rank", rank, *more)


def stop_all(folder: RunFolder) -> None:
    wait_until(lambda: steps_done(folder) >= 2)
    for rank in folder.ranks():
        os.kill(rank.pid, signal.SIGSTOP)


def above_ranks(*names: str, levels: int, number: signal.Signals = signal.SIGKILL) -> Callable[[RunFolder], None]:
    """A signal to the launcher (1 level above a rank), the keeper (2), or both."""

    def inject(folder: RunFolder) -> None:
        wait_until(lambda: steps_done(folder) >= 2)
        parents = psutil.Process(next(iter(folder.ranks())).pid).parents()
        for process in parents[levels - 1 : levels - 1 + max(1, len(names))]:
            process.send_signal(number)

    return inject


LONG = ("--steps", "3000", "--pause", "0.05")

_LEFT = "left with exit code 0"

LEAVING = (
    Case(fault="sys.exit(0) of rank 1 in mid-run", arguments=fault("exit:0"), causes=("exit",), code=1, culprit=1,
         says="SystemExit at"),
    Case(fault="sys.exit(0) of rank 0 in mid-run", arguments=fault("exit:0", rank="0"), causes=("exit",), code=1,
         culprit=0, says="SystemExit at"),
    Case(fault="os._exit(0) of rank 1 in mid-run", arguments=fault("_exit:0"), causes=("exit",), code=1, culprit=1,
         says="os._exit(0)"),
    Case(fault="os._exit(0) of rank 0 in mid-run", arguments=fault("_exit:0", rank="0"), causes=("exit",), code=1,
         culprit=0, says="os._exit(0)"),
    Case(fault="os._exit(0) of rank 1 before the first step", arguments=fault("_exit:0", "start"), causes=("exit",),
         code=1, culprit=1, says=_LEFT),
    Case(fault="os._exit(0) of both ranks", arguments=fault("_exit:0", rank="all"), causes=("success",), code=0,
         says="left in the midst of its script"),
    Case(fault="os._exit(0) of rank 2 of 4", arguments=fault("_exit:0", rank="2"), causes=("exit",), code=1,
         culprit=2, says="os._exit(0)", processes=4),
    Case(fault="sys.exit(0) of a single process", arguments=fault("exit:0", rank="0"), causes=("success",), code=0,
         processes=1),
)  # fmt: skip
"""A rank leaves with 0."""

STOPPED = (
    Case(fault="SIGSTOP of rank 1", arguments=fault("SIGSTOP"), causes=("hang",), code=137, culprit=1,
         says="rank 1 had been stopped", limits=IMPATIENT),
    Case(fault="SIGSTOP of rank 0", arguments=fault("SIGSTOP", rank="0"), causes=("hang",), code=137, culprit=0,
         says="rank 0 had been stopped", limits=IMPATIENT),
    Case(fault="SIGSTOP of both ranks", arguments=LONG, causes=("hang",), code=137, culprit=0,
         says="and so were 1 more", limits=IMPATIENT, inject=stop_all),
    Case(fault="SIGSTOP of rank 3 of 4 before the first step", arguments=fault("SIGSTOP", "start", "3"),
         causes=("hang",), code=137, culprit=3, says="before the first step; rank 3 had been stopped",
         limits=BEFORE, processes=4),
    Case(fault="SIGSTOP, then SIGCONT", arguments=fault("stop-cont"), causes=("success",), code=0),
    Case(fault="SIGSTOP of a single process", arguments=fault("SIGSTOP", rank="0"), causes=("hang",), code=137,
         culprit=0, says="stopped", processes=1, limits=IMPATIENT),
    Case(fault="a hang before torch is imported", arguments=fault("hang", "import"), causes=("hang",), code=137,
         culprit=ANY, says="before the first step", limits=BEFORE),
    Case(fault="two ranks wait for each other", arguments=fault("deadlock", rank="all"), causes=("hang",), code=137,
         culprit=None, says="in deadlock", limits=IMPATIENT),
)  # fmt: skip
"""Stopped, hanging."""

ENDED = (
    Case(fault="sys.exit(1) of rank 1", arguments=fault("exit:1"), causes=("exit",), code=1, culprit=1),
    Case(fault="os._exit(3) of rank 1", arguments=fault("_exit:3"), causes=("exit",), code=3, culprit=1),
    Case(fault="sys.exit(-1) of rank 1", arguments=fault("exit:-1"), causes=("exit",), code=255, culprit=1),
    Case(fault="sys.exit with words", arguments=fault("words"), causes=("exit",), code=1, culprit=1),
    Case(fault="os._exit(5) in a thread", arguments=fault("thread-exit"), causes=("exit",), code=5, culprit=1),
    Case(fault="os.abort()", arguments=fault("abort"), causes=("signal",), code=134, culprit=1, says="SIGABRT"),
    Case(fault="SIGBUS of rank 0", arguments=fault("SIGBUS", rank="0"), causes=("signal",), code=135, culprit=0,
         says="SIGBUS"),
    Case(fault="SIGSEGV in a single process", arguments=fault("SIGSEGV", rank="0"), causes=("signal",), code=139,
         culprit=0, says="SIGSEGV", processes=1),
    Case(fault="SIGKILL of rank 3 of 4", arguments=fault("SIGKILL", rank="3"), causes=("signal",), code=137,
         culprit=3, says="SIGKILL", processes=4),
    Case(fault="SIGKILL of rank 1 before the first step", arguments=fault("SIGKILL", "start"), causes=("signal",),
         code=137, culprit=1, says="SIGKILL"),
    Case(fault="SIGKILL of rank 1 before torch is imported", arguments=fault("SIGKILL", "import"),
         causes=("signal",), code=137, culprit=1, says="SIGKILL"),
    Case(fault="SIGKILL of both ranks", arguments=fault("SIGKILL", rank="all"), causes=("signal",), code=137,
         culprit=ANY, says="SIGKILL"),
)  # fmt: skip
"""Exit codes and signals."""

EXCEPTIONS = (
    Case(fault="an exception in a DataLoader's worker", arguments=fault("exception", "loader"),
         causes=("exception",), code=1, culprit=1, says="a bad sample"),
    Case(fault="SIGKILL of a DataLoader's worker", arguments=fault("SIGKILL", "loader"), causes=("exception",),
         code=1, culprit=1, says="DataLoader worker"),
    Case(fault="an exception in a thread", arguments=fault("thread-exception"), causes=("success",), code=0),
    Case(fault="an exception before torch is imported", arguments=fault("exception", "import"),
         causes=("exception",), code=1, culprit=1, says="before its first step"),
    Case(fault="an exception while saving", arguments=fault("exception", "save"), causes=("exception",), code=1,
         culprit=1),
    Case(fault="an exception in backward", arguments=fault("exception", "backward"), causes=("exception",), code=1,
         culprit=1, says="a bad sample"),
    Case(fault="the recursion limit", arguments=fault("recursion"), causes=("exception",), code=1, culprit=1,
         says="RecursionError"),
    Case(fault="KeyboardInterrupt in a rank", arguments=fault("keyboard"), causes=("signal",), code=130,
         culprit=ANY),
    Case(fault="an exception, both output streams closed", arguments=fault("close-and-fail"),
         causes=("exception",), code=1, culprit=1, says="a bad sample"),
    Case(fault="stdout closed, and printed to", arguments=fault("close-output"), causes=("exception",), code=1,
         culprit=1, says="I/O operation on closed file"),
    Case(fault="a working directory that vanishes", arguments=fault("no-directory"), causes=("success",), code=0),
)  # fmt: skip
"""Exceptions in many places."""

ABOVE = (
    Case(fault="SIGKILL of the keeper", arguments=LONG, causes=("launcher",), code=125, culprit=None,
         inject=above_ranks(levels=2)),
    Case(fault="SIGKILL of launcher and keeper", arguments=LONG, causes=("launcher",), code=125, culprit=None,
         inject=above_ranks("launcher", "keeper", levels=1)),
)  # fmt: skip
"""Above the ranks."""

OTHERS = (
    Case(fault="os._exit(0) of rank 1 under FSDP2", arguments=("--fault", "_exit0"), causes=("exit",), code=1,
         culprit=1, says=_LEFT, strategy="fsdp", lean=False),
    Case(fault="SIGSTOP of rank 1 under FSDP2", arguments=("--fault", "stop"), causes=("hang",), code=137,
         culprit=1, says="rank 1 had been stopped", strategy="fsdp", lean=False, limits=IMPATIENT),
    Case(fault="sys.exit(0) of rank 1 under ZeRO-2", arguments=("--fault", "exit0"), causes=("exit",), code=1,
         culprit=1, says=_LEFT, strategy="zero2", lean=False),
    Case(fault="SIGKILL of rank 1 under ZeRO-2", arguments=("--fault", "kill"), causes=("signal",), code=137,
         culprit=1, says="SIGKILL", strategy="zero2", lean=False),
    Case(fault="os._exit(0) of rank 1, with checkpoints", arguments=("--fault", "_exit0", "--at", "6", *AGAIN),
         causes=("exit", "success"), code=0, culprit=1, says=_LEFT, lean=False, restarts=1),
    Case(fault="SIGSTOP of rank 1, with checkpoints", arguments=("--fault", "stop", "--at", "6", *AGAIN),
         causes=("hang", "success"), code=0, culprit=1, says="rank 1 had been stopped", lean=False, restarts=1,
         limits=IMPATIENT),
    Case(fault="os.abort() of rank 0, with checkpoints", arguments=("--fault", "abort", "--rank", "0", *AGAIN),
         causes=("signal", "success"), code=0, culprit=0, says="SIGABRT", lean=False, restarts=1),
)  # fmt: skip
"""Other strategies, and with checkpoints."""

CASES = (*LEAVING, *STOPPED, *ENDED, *EXCEPTIONS, *ABOVE, *OTHERS)
"""In the order in which they are run."""
