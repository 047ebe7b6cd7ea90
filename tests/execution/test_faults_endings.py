"""Ranks that leave with 0, that are stopped, that leave processes behind: who was the cause, and that nothing is left.

A sample of `benchmarks/damage/faults.py`, which runs them all.
"""

import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.supervise.limits import Limits
from tests.support.fault_job import ENVIRONMENT, LEAN, job
from tests.support.fault_runs import IMPATIENT, QUICK, Ended, alive, command_line, marked, run, wait_until
from tests.support.lean_fault_script import CHILDREN, MARK


def lean(folder: Path, *arguments: str, limits: Limits = QUICK, mark: str = "0") -> Ended:
    asked = job(folder, *arguments, script=LEAN)
    return run(replace(asked, environment={**ENVIRONMENT, MARK: mark}), limits)


def test_a_rank_that_leaves_in_mid_run_is_the_cause_and_what_it_left_behind_is_ended(tmp_path: Path) -> None:
    """Of two ranks one empties the environment of a child, gives it a session of its own, and leaves with 0."""
    mark = str(time.time_ns())
    ended = lean(tmp_path, "--fault", "child-escaped,child-deaf,_exit:0", "--at", "3", mark=mark)
    attempt = ended.record.attempts[0]
    assert (ended.causes, attempt.culprit, ended.record.exit_code) == (["exit"], 1, 1)
    assert "rank 1 left with exit code 0" in attempt.explanation
    assert "os._exit(0)" in attempt.explanation
    assert [phase.name for phase in attempt.phases][:3] == ["launcher", "importing torch", "preparing"]
    assert not [pid for number in range(len(CHILDREN)) for pid in marked(f"{mark}{number}")]
    assert not ended.orphans


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_sys_exit_is_named_with_its_line(tmp_path: Path, rank: int) -> None:
    ended = lean(tmp_path, "--fault", "exit:0", "--rank", str(rank))
    attempt = ended.record.attempts[0]
    assert (ended.causes, attempt.culprit, ended.record.exit_code) == (["exit"], rank, 1)
    assert "SystemExit at" in attempt.explanation
    assert "lean_fault_script.py:" in attempt.explanation


@pytest.mark.slow
def test_a_stopped_rank_is_named_and_our_own_shot_is_noted(tmp_path: Path) -> None:
    ended = lean(tmp_path, "--fault", "SIGSTOP", limits=IMPATIENT)
    attempt = ended.record.attempts[0]
    assert (ended.causes, attempt.culprit) == (["hang"], 1)
    assert "rank 1 had been stopped by a signal" in attempt.explanation
    assert any("the run had hung" in shot for shot in attempt.shots)
    assert not ended.orphans


@pytest.mark.slow
def test_a_hang_before_the_first_step_is_bounded_by_the_users_figure(tmp_path: Path) -> None:
    ended = lean(tmp_path, "--fault", "hang", "--when", "import", limits=replace(IMPATIENT, hang_first=45.0))
    assert ended.causes == ["hang"]
    assert "before the first step" in ended.record.attempts[0].explanation


@pytest.mark.slow
def test_deaf_ranks_are_shot_by_plan_and_the_run_was_interrupted(tmp_path: Path) -> None:
    long = ("--steps", "3000", "--pause", "0.05", "--fault", "deaf", "--rank", "all", "--at", "2")
    started = command_line(tmp_path, *long, script=LEAN)
    assert started.end(signal.SIGTERM) == 143
    attempt = started.folder.read_run().attempts[0]
    assert attempt.cause == "interrupted"
    assert any("after SIGTERM" in shot for shot in attempt.shots)


@pytest.mark.slow
def test_a_killed_supervisor_leaves_no_escaped_child(tmp_path: Path) -> None:
    mark = str(time.time_ns())
    long = ("--steps", "3000", "--pause", "0.05", "--fault", "child-escaped,child-deaf", "--at", "2")
    started = command_line(tmp_path, *long, script=LEAN, environment={MARK: mark})
    started.end(signal.SIGKILL)
    assert wait_until(lambda: started.folder.read_run().status == "lost", 60)
    assert not [pid for number in range(len(CHILDREN)) for pid in marked(f"{mark}{number}")]
    assert not alive(started.folder.run_id)
