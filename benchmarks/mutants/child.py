"""Tests of a scratch copy, in a process forked from one that has imported torch already (I/O, starts processes)."""

import importlib
import json
import os
import resource
import signal
import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path

WARM = ("pytest", "hypothesis", "numpy", "scipy.optimize", "yaml", "torch")
"""What most tests import, and nothing of this project: each child reads the copy's sources anew."""

_EXPRESSION = "not slow and not own_process"


def warm() -> None:
    """Imports what children share. Run once in each process that forks them."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in WARM:
        importlib.import_module(name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests of a copy came to."""

    failed: str
    """The first test that failed, "" where all passed; a loop without end is "(did not end)"."""
    seconds: int
    """Processor time, rounded up."""


def outcome(copy: Path, tests: tuple[str, ...], limit: int) -> Outcome:
    """Runs the copy's tests to the first that fails; `limit` are seconds of processor time, whatever else runs here."""
    report = copy / ".mutant.json"
    report.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _run(copy, tests, report, limit)
    _, status, used = os.wait4(child, 0)
    seconds = ceil(used.ru_utime + used.ru_stime)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return Outcome("(did not end)", seconds)
    try:
        return Outcome(json.loads(report.read_text()), seconds)
    except (OSError, ValueError):
        return Outcome("(the tests' process died)", seconds)


def _run(copy: Path, tests: tuple[str, ...], report: Path, limit: int) -> None:
    """In the child; does not return."""
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        os.chdir(copy)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        # The copy's own modules, before those of the installed project.
        own = [str(copy / "src"), str(copy)]
        sys.path[:] = [*own, *(entry for entry in sys.path if entry not in ("", os.getcwd()))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("benchmarks", "tests", "gpu_plan")]:
            del sys.modules[name]
        os.environ.pop("PLAN_TEST_SCRATCH", None)
        report.write_text(json.dumps(_failing(copy, tests)))
    finally:
        os._exit(0)


def _failing(copy: Path, tests: tuple[str, ...]) -> str:
    import pytest

    class Seen:
        first = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                self.first = self.first or report.nodeid

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                self.first = self.first or f"{report.nodeid} (import)"

    seen = Seen()
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-m", _EXPRESSION]
    code = int(pytest.main([*words, f"--rootdir={copy}", *tests], plugins=[seen]))
    return seen.first or ("" if code in (0, 5) else f"(pytest ended with {code})")
