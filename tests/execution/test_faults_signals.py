"""Signals to the launcher and to `plan` itself: the job ends, nobody is left, and the record says so."""

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from gpu_plan.executor.read_run import read_whole
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.reports.run.compare import compare_run
from gpu_plan.reports.run.text import render_run_text
from gpu_plan.reports.run.words import duration
from tests.support.fault_job import job
from tests.support.fault_runs import command_line, run, signal_launcher, steps_done, wait_until

STEPS = 5000
LONG = ("--steps", str(STEPS), "--pause", "0.1")


@pytest.mark.slow
def test_launcher_killed_then_told_to_end(tmp_path: Path) -> None:
    """A launcher that is killed is a crash and tried again; one that is told to end is an interrupt."""

    def inject(folder: RunFolder) -> None:
        signal_launcher(signal.SIGKILL)(folder)
        wait_until(lambda: (folder.path / "attempt-1").is_dir())
        signal_launcher(signal.SIGTERM)(folder)

    ended = run(job(tmp_path, *LONG, max_restarts=1), inject=inject)
    assert ended.causes == ["launcher", "interrupted"]
    assert "SIGKILL" in ended.record.attempts[0].explanation
    assert (ended.record.status, ended.record.exit_code) == ("interrupted", 143)
    assert not ended.orphans


@pytest.mark.slow
def test_launcher_interrupted(tmp_path: Path) -> None:
    ended = run(job(tmp_path, *LONG, max_restarts=1), inject=signal_launcher(signal.SIGINT))
    assert ended.causes == ["interrupted"]
    assert not ended.orphans


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_plan_itself_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    started = command_line(tmp_path, *LONG)
    code = 128 + number
    assert started.end(number) == code
    assert steps_done(started.folder) < STEPS
    record = started.folder.read_run()
    assert (record.status, record.exit_code, record.attempts[0].cause) == ("interrupted", code, "interrupted")
    assert number.name in record.message
    out, err = started.process.communicate()
    assert "begin rank 0" in out
    assert "Traceback" not in err


def test_plan_itself_is_killed(tmp_path: Path) -> None:
    started = command_line(tmp_path, *LONG)
    killed = time.time()
    assert started.end(signal.SIGKILL) == -signal.SIGKILL
    assert steps_done(started.folder) < STEPS
    assert wait_until(lambda: started.folder.read_run().ended is not None)
    whole = read_whole(started.folder)
    assert (whole.status, whole.record.status) == ("lost", "lost")
    assert whole.record.ended is not None
    assert abs(whole.record.ended - killed) < 60  # and not when the attempt began, nor when somebody looks
    took = re.escape(duration(whole.record.ended - whole.record.started))
    assert re.search(rf"took +{took}\n", render_run_text(whole, compare_run(whole)))


@pytest.mark.slow
def test_two_interrupts_do_not_wait_for_a_deaf_rank(tmp_path: Path) -> None:
    started = command_line(tmp_path, *LONG, "--fault", "deaf-peer", "--at", "300")
    started.process.send_signal(signal.SIGINT)
    assert started.end(signal.SIGINT) == 130


@pytest.mark.slow
def test_two_runs_at_once_keep_apart(tmp_path: Path) -> None:
    """Started in the same second in the same folder, each has a run folder, ranks and a rendezvous of its own."""
    first = command_line(tmp_path, "--steps", "60", "--pause", "0.1")
    second = run(job(tmp_path, "--steps", "5"))
    first.process.communicate(timeout=1500)
    assert first.process.returncode == 0
    assert second.record.status == "succeeded"
    assert first.folder.path != second.folder.path
    assert first.folder.read_run().status == "succeeded"
    assert steps_done(first.folder) == 60
    assert steps_done(second.folder) == 5
    assert not any(psutil.pid_exists(rank.pid) for rank in first.folder.ranks())
    assert os.getpid() == second.record.supervisor_pid != first.folder.read_run().supervisor_pid
