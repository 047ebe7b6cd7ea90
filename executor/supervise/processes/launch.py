"""Starts the launcher, below a keeper, so that nothing of it can outlive the supervisor (I/O)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.names import DAEMON, RUN_FILE, RUN_ID
from gpu_plan.executor.supervise.processes.keeper import FAREWELL
from gpu_plan.executor.supervise.processes.strays import Members
from gpu_plan.planner.errors import PreflightError
from gpu_plan.planner.own_python import ROOT, own_command, own_environment

LAUNCHER_OUT, LAUNCHER_ERR = "launcher.stdout.log", "launcher.stderr.log"
_POLL = 0.02


@dataclass(slots=True, kw_only=True)
class Started:
    """A launcher at work below its keeper. Use from one thread."""

    keeper: "subprocess.Popen[bytes]"
    members: Members
    pid: int = 0
    """The launcher's."""
    code: int | None = None
    """Its return code, negative for a signal; None while it runs."""
    error: str = ""
    """Why it could not be started."""
    lost: bool = False
    """Whether the keeper itself was killed, and the launcher with it."""
    _said: bytes = field(default=b"")

    def poll(self) -> int | None:
        """The launcher's return code, None while it runs."""
        stream = self.keeper.stdout
        if self.code is not None or stream is None:
            return self.code
        with contextlib.suppress(BlockingIOError):
            while more := os.read(stream.fileno(), 4096):
                self._said += more
            if self.code is None and not self._take():
                self.code, self.lost = -signal.SIGKILL, True
        self._take()
        return self.code

    def _take(self) -> bool:
        """Reads what the keeper said; whether it told the end."""
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            told = json.loads(line)
            self.pid = told.get("pid", self.pid)
            self.error = told.get("error", self.error)
            self.code = told.get("code", self.code)
        return self.code is not None or bool(self.error)

    def wait(self) -> int:
        """Blocks until the launcher has ended."""
        while (code := self.poll()) is None:
            time.sleep(_POLL)
        return code

    def send(self, number: signal.Signals) -> None:
        """A signal to the launcher alone, while it runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Lets the keeper go; it ends what is left."""
        if self.keeper.stdin is not None:
            with contextlib.suppress(OSError):
                self.keeper.stdin.write(FAREWELL)
                self.keeper.stdin.flush()
            with contextlib.suppress(OSError):
                self.keeper.stdin.close()
        try:
            self.keeper.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.keeper.kill()
            self.keeper.wait()
        if self.keeper.stdout is not None:
            self.keeper.stdout.close()


def start(
    files: LaunchFiles,
    *,
    script: Path,
    run_id: str,
    directory: Path,
    logs: Path,
    environment: Mapping[str, str],
    leave: tuple[str, ...] = (),
) -> Started:
    """Starts the launch command in `directory`, a session of its own, its output in files below `logs`.

    What lies in `directory`, or beside the `script` that the ranks will run, is imported by none of the launcher's own
    processes. `leave`: programs that may outlive the run. PreflightError where the command cannot be started at all.
    """
    logs.mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name != DAEMON}
    variables = own_environment(
        {**inherited, **files.environment, **environment, RUN_ID: run_id}, directory=directory, script=script
    )
    wanted = {
        "command": list(files.command),
        "directory": str(directory),
        "environment": variables,
        "out": str(logs / LAUNCHER_OUT),
        "err": str(logs / LAUNCHER_ERR),
        "run_id": run_id,
        "record": str(logs.parent / RUN_FILE),
        "leave": leave,
    }
    keeper = _start_keeper(logs)
    started = Started(keeper=keeper, members=Members(run_id=run_id, keeper=keeper.pid, leave=leave))
    try:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        keeper.stdin.write(json.dumps(wanted).encode() + b"\n")
        keeper.stdin.flush()
        os.set_blocking(keeper.stdout.fileno(), False)
        while not started.pid and not started.error and started.poll() is None:
            time.sleep(_POLL)
        problem = started.error or ("" if started.pid else "its keeper ended at once")
    except OSError as error:
        problem = f"its keeper ended at once ({error.strerror or error})"
    if problem:
        started.close()
        raise PreflightError(f"{files.command[0]} cannot be started: {problem}")
    return started


def _start_keeper(logs: Path) -> "subprocess.Popen[bytes]":
    variables = {key: value for key, value in os.environ.items() if key not in (RUN_ID, DAEMON)}
    # Without site-packages it starts at once: it needs this package's folder alone.
    quick = ("-S",) if sys.platform == "linux" else ()  # elsewhere it needs psutil
    with (logs / LAUNCHER_ERR).open("ab") as err:
        return subprocess.Popen(
            own_command("gpu_plan.executor.supervise.processes.keeper", *quick),
            env={**variables, "PYTHONPATH": ROOT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            start_new_session=True,
        )
