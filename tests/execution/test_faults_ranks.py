"""A rank that dies, fails or stops: the cause is told, the rest is ended, the job goes on where it was saved."""

import signal
from pathlib import Path

import pytest

from tests.support.fault_job import job
from tests.support.fault_runs import IMPATIENT, kill_a_rank, newest_step, run

SAVE_EVERY = 4


def _killed_at_random(folder: Path, seed: int) -> None:
    arguments = ("--steps", "40", "--pause", "0.05", "--save-every", str(SAVE_EVERY))
    ended = run(job(folder, *arguments, max_restarts=1), inject=kill_a_rank(seed, 30))
    assert ended.record.status == "succeeded"
    assert ended.record.exit_code == 0
    assert not ended.orphans
    assert newest_step(ended.folder) == 40
    if len(ended.causes) == 1:  # the shot came when the ranks had ended
        return
    assert ended.causes == ["signal", "success"]
    assert "SIGKILL" in ended.record.attempts[0].explanation
    # One interval, or two where the shot tore the checkpoint that was being written.
    assert ended.steps_lost() <= 2 * SAVE_EVERY
    assert ended.record.attempts[1].last_step == 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_rank_killed_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    _killed_at_random(tmp_path, seed)


@pytest.mark.slow
def test_an_exception_in_one_rank_is_the_cause_though_its_peers_complain(tmp_path: Path) -> None:
    ended = run(job(tmp_path, "--fault", "deaf-peer"))
    assert ended.record.status == "failed"
    assert ended.causes == ["exception"]
    assert ended.record.exit_code == 1
    attempt = ended.record.attempts[0]
    assert attempt.culprit == 1
    assert "ValueError: a bad sample at" in attempt.explanation
    assert attempt.last_step == 2
    assert "--max-restarts" in ended.record.message
    assert not ended.orphans


@pytest.mark.slow
def test_a_rank_that_hangs_is_found_with_the_line_it_stands_at(tmp_path: Path) -> None:
    ended = run(job(tmp_path, "--fault", "hang"), IMPATIENT)
    attempt = ended.record.attempts[0]
    assert (attempt.cause, attempt.culprit) == ("hang", 1)
    assert ended.record.exit_code == 128 + signal.SIGKILL
    assert "fault_script.py" in attempt.explanation
    assert "in fault" in (ended.folder.logs / "rank-1.stacks").read_text()
    assert not ended.orphans


@pytest.mark.slow
def test_after_a_hang_the_job_goes_on_and_the_stacks_are_kept(tmp_path: Path) -> None:
    again = ("--steps", "8", "--save-every", "2")
    ended = run(job(tmp_path, "--fault", "hang", *again, max_restarts=1), IMPATIENT)
    assert ended.causes == ["hang", "success"]
    first, second = ended.record.attempts
    kept = ended.folder.path / "attempt-1" / "logs"
    assert str(kept) in first.explanation
    assert (kept / "rank-1.stacks").is_file()
    assert (second.first_step, second.last_step) == (3, 8)
    assert not ended.orphans


@pytest.mark.slow
def test_a_rank_that_spins_is_given_longer_and_ended_all_the_same(tmp_path: Path) -> None:
    ended = run(job(tmp_path, "--fault", "spin"), IMPATIENT)
    assert ended.causes == ["hang"]
    assert not ended.orphans


@pytest.mark.slow
def test_the_same_exception_twice_is_not_tried_a_third_time(tmp_path: Path) -> None:
    ended = run(job(tmp_path, "--fault", "exception", "--attempts", "9", max_restarts=9))
    assert ended.causes == ["exception", "exception"]
    assert "it is not an accident" in ended.record.message
    assert not ended.orphans


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "cause", "code"), [("exit", "exit", 3), ("segv", "signal", 139), ("term", "signal", 143)]
)
def test_the_culprits_exit_code_is_passed_on(tmp_path: Path, fault: str, cause: str, code: int) -> None:
    ended = run(job(tmp_path, "--fault", fault))
    assert (ended.causes, ended.record.exit_code, ended.record.attempts[0].culprit) == ([cause], code, 1)
    assert not ended.orphans


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "cause", "code"), [("none", "success", 0), ("exit", "exit", 3), ("kill", "signal", 137)]
)
def test_one_process(tmp_path: Path, fault: str, cause: str, code: int) -> None:
    ended = run(job(tmp_path, "--fault", fault, "--rank", "0", processes=1))
    assert (ended.causes, ended.record.exit_code) == ([cause], code)
    assert not ended.orphans


@pytest.mark.slow
def test_what_the_script_leaves_behind_is_ended(tmp_path: Path) -> None:
    ended = run(job(tmp_path, "--fault", "child"))
    assert ended.record.status == "succeeded"
    assert not ended.orphans
