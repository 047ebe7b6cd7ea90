"""Starts the launcher so that nothing of it can outlive the supervisor (I/O)."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.names import RUN_ID
from gpu_plan.planner.errors import PreflightError
from gpu_plan.planner.own_python import ROOT, own_command, own_environment

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)
LAUNCHER_OUT, LAUNCHER_ERR = "launcher.stdout.log", "launcher.stderr.log"


def adopt_orphans(wanted: bool = True) -> None:
    """Makes this process the parent of its descendants' orphans (Linux's child subreaper), or no longer."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(wanted))


def _prctl(option: int, value: int) -> None:
    """Linux's own; elsewhere the guard alone ends what is left."""
    call = getattr(_LIBC, "prctl", None)
    if call is not None:
        call(option, value, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A launcher at work, and the guard beside it."""

    launcher: "subprocess.Popen[bytes]"
    guard: "subprocess.Popen[bytes]"

    def close_guard(self) -> None:
        """Lets the guard go; it looks for strays once more."""
        if self.guard.stdin is not None:
            self.guard.stdin.close()
        try:
            self.guard.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.guard.kill()
            self.guard.wait()


def start(
    files: LaunchFiles, *, script: Path, run_id: str, directory: Path, logs: Path, environment: Mapping[str, str]
) -> Started:
    """Starts the launch command in `directory`, a session of its own, its output in files below `logs`.

    What lies in `directory`, or beside the `script` that the ranks will run, is imported by none of the launcher's own
    processes. It is killed with the thread that called this. PreflightError where the command cannot be started at all.
    """
    logs.mkdir(parents=True, exist_ok=True)
    variables = own_environment(
        {**os.environ, **files.environment, **environment, RUN_ID: run_id}, directory=directory, script=script
    )
    guard = _start_guard(run_id)
    try:
        with (logs / LAUNCHER_OUT).open("ab") as out, (logs / LAUNCHER_ERR).open("ab") as err:
            launcher = subprocess.Popen(
                files.command,
                cwd=directory,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),
            )
    except OSError as error:
        Started(launcher=guard, guard=guard).close_guard()
        raise PreflightError(f"{files.command[0]} cannot be started: {error.strerror or error}") from None
    return Started(launcher=launcher, guard=guard)


def _start_guard(run_id: str) -> "subprocess.Popen[bytes]":
    variables = {key: value for key, value in os.environ.items() if key != RUN_ID}
    # Without site-packages it starts at once: it needs this package's folder alone.
    quick = ("-S",) if sys.platform == "linux" else ()  # elsewhere it needs psutil
    return subprocess.Popen(
        (*own_command("gpu_plan.executor.supervise.processes.guard", *quick), run_id),
        env={**variables, "PYTHONPATH": ROOT},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _die_with_parent(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return prepare
