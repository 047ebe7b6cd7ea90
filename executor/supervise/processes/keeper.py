"""The process between the supervisor and the launcher: whatever a run starts stays below it, and ends with it.

It is a child subreaper: what daemonises, changes its session or empties its environment loses its parents to it, and
to nobody else. Its standard input brings what to start, as one line of JSON, and is then held open by the supervisor
alone: where that ends without a farewell the supervisor has died, however it came, SIGKILL included, and the keeper
ends the run and says so in run.json. Its standard output tells how the launcher fares. Where the keeper is killed, the
supervisor ends what it has seen below it.

Started as `python -S -m gpu_plan.executor.supervise.processes.keeper`; imported by nobody. Needs no privilege. What
remains: whoever kills keeper and supervisor in the same moment, or the keeper in the moment of a birth, lets go what
has left its session and environment.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from gpu_plan.executor.supervise.processes.kernel import adopt_orphans, die_with
from gpu_plan.executor.supervise.processes.strays import Members

FAREWELL = b"farewell\n"
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Starts the launcher, waits until the supervisor has gone, ends what is left."""
    supervisor = os.getppid()
    for number in (*_IGNORED, signal.SIGCHLD):
        # A handler, not SIG_IGN, which the launcher would inherit; what was ignored before us (nohup) stays so.
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:
            signal.signal(number, _noted)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    adopt_orphans()
    line = sys.stdin.buffer.readline()
    if not line:  # the supervisor died before it had anything started
        return
    wanted = json.loads(line)
    try:
        launcher = _start(wanted)
    except OSError as error:
        _tell(error=error.strerror or str(error))
        return
    _tell(pid=launcher.pid)
    farewell = _wait(launcher.pid, woken, supervisor)
    members = Members(run_id=wanted["run_id"], keeper=os.getpid(), leave=tuple(wanted["leave"]))
    killed = members.end_all(0.0)
    _reap(None)
    if not farewell:
        _write_loss(Path(wanted["record"]), supervisor, len(killed))


def _start(wanted: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """The launcher. It dies with this process. To be held: its deletion would take its exit status away."""
    keeper = os.getpid()
    with open(wanted["out"], "ab") as out, open(wanted["err"], "ab") as err:
        return subprocess.Popen(
            wanted["command"],
            cwd=wanted["directory"],
            env=wanted["environment"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: die_with(keeper),
        )


def _wait(launcher: int, woken: int, supervisor: int) -> bool:
    """Returns when the supervisor is done with the run, or dead; whether it said farewell."""
    said = b""
    watched: list[int] = [0, woken]
    with contextlib.suppress(OSError, AttributeError):
        # A child that a supervisor of many threads forked meanwhile holds our input open, too.
        watched.append(os.pidfd_open(supervisor))
    while True:
        ready, _, _ = select.select(watched, [], [], None)
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
        _reap(launcher)
        if 0 in ready:
            more = os.read(0, 4096)
            said += more
            if not more:
                return FAREWELL in said
        elif len(watched) > 2 and watched[2] in ready:
            return False


def _reap(launcher: int | None) -> None:
    """Collects all that has ended; all children of this process are the run's."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid == launcher:
                _tell(code=os.waitstatus_to_exitcode(status))


def _tell(**what: object) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(what).encode() + b"\n")


def _noted(number: int, frame: FrameType | None) -> None:
    """The wakeup pipe says it."""


def _write_loss(path: Path, supervisor: int, killed: int) -> None:
    """What nobody else can say any more: when the run was lost, and that nothing of it is left."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        record, now = json.loads(path.read_text()), time.time()
        if record["status"] not in ("preparing", "running"):
            return
        for attempt in record["attempts"][-1:]:
            attempt["ended"] = attempt["ended"] or now
        record |= {
            "status": "lost",
            "ended": now,
            "updated": now,
            "message": f"the supervisor (process {supervisor}) was killed; {killed} processes of the run were ended",
        }
        partial = path.with_name(f".{path.name}.keeper")
        partial.write_text(json.dumps(record, indent=2) + "\n")
        os.replace(partial, path)


if __name__ == "__main__":
    main()
