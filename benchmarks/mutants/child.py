"""Tests of a scratch copy, in an interpreter of their own (I/O, starts a process)."""

import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

EXPRESSION = "not slow and not own_process"
"""Which tests are tried: the fast ones, in this very process."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tests came to."""

    failed: str
    """The first test that failed, "" where all passed; a loop without end is "(did not end)"."""
    seconds: int = 0
    """Processor time, rounded up."""


def outcome(copy: Path, tests: tuple[str, ...], limit: int) -> Outcome:
    """Runs the copy's tests to the first that fails; `limit` are seconds of processor time."""
    words = ["-x", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-m", EXPRESSION]
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}", "OMP_NUM_THREADS": "1"}
    environment.pop("PLAN_TEST_SCRATCH", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--rootdir={copy}", *tests],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1)),
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Outcome("(did not end)")
    failed = _FAILED.search(done.stdout)
    return Outcome(failed[1] if failed else "" if done.returncode == 0 else f"(pytest ended with {done.returncode})")
