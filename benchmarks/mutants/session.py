"""All tests collected once; each mutant is tried in a fork of that, which costs no import (I/O, starts processes)."""

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import NoReturn

import pytest

import gpu_plan.planner.memory.allocator.replay as allocator
from benchmarks.mutants.child import EXPRESSION, Outcome
from benchmarks.mutants.mutant import ROOT, Mutant
from benchmarks.mutants.patch import planted

NOT_HERE = "(cannot be planted into what is loaded)"


def serve(
    tests: Sequence[str],
    ask: Callable[[], Iterator[tuple[Mutant | None, tuple[str, ...], int]]],
    tell: Callable[[Outcome], None],
) -> None:
    """Collects `tests`; then, for each (mutant, tests, limit in seconds of processor time) asked, tells the outcome."""
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-m", EXPRESSION, f"--rootdir={ROOT}"]
    keeper = _Keeper(ask, tell)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 2)
    with contextlib.redirect_stdout(open(os.devnull, "w")):
        code = int(pytest.main([*words, *tests], plugins=[keeper]))
    if not keeper.served:
        raise SystemExit(f"the tests could not be collected: pytest ended with {code}")


class _Keeper:
    """In pytest's own process: forks for each question in place of running the tests."""

    def __init__(
        self, ask: Callable[[], Iterator[tuple[Mutant | None, tuple[str, ...], int]]], tell: Callable[[Outcome], None]
    ) -> None:
        self._ask, self._tell = ask, tell
        self._failed = ""
        self.served = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.served = True
        of_file: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            of_file.setdefault(item.path.relative_to(ROOT).as_posix(), []).append(item)
        for mutant, tests, limit in self._ask():
            items = [item for test in tests for item in of_file.get(test, [])]
            self._tell(self._forked(session, mutant, items, limit))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = self._failed or report.nodeid

    def _forked(self, session: pytest.Session, mutant: Mutant | None, items: list[pytest.Item], limit: int) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix="plan-mutant-"))
        report = folder / "report.json"
        child = os.fork()
        if child == 0:
            self._in_child(session, mutant, items, limit, folder, report)
        _, status, used = os.wait4(child, 0)
        seconds = ceil(used.ru_utime + used.ru_stime)
        try:
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
                return Outcome("(did not end)", seconds)
            return Outcome(json.loads(report.read_text()), seconds)
        except (OSError, ValueError):
            return Outcome("(the tests' process died)", seconds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _in_child(
        self,
        session: pytest.Session,
        mutant: Mutant | None,
        items: list[pytest.Item],
        limit: int,
        folder: Path,
        report: Path,
    ) -> NoReturn:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            allocator.COMPILED = False  # the compiled heap would run in place of the one with the fault
            os.environ["GPU_PLAN_CACHE"] = str(folder / "cache")  # what a fault has traced is nobody else's
            done = mutant is None or planted(mutant.path, mutant.changed((ROOT / mutant.path).read_text()))
            if not done:
                report.write_text(json.dumps(NOT_HERE))
                return os._exit(0)
            for index, item in enumerate(items):
                following = items[index + 1] if index + 1 < len(items) else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._failed:
                    break
            report.write_text(json.dumps(self._failed))
        except BaseException as problem:
            report.write_text(json.dumps(f"({type(problem).__name__} while it is planted)"))
        finally:
            sys.stdout.flush()
            os._exit(0)
