"""Why an attempt ended, from what is known of it."""

import signal
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpu_plan.executor.records.rank import RankError, RankRecord, RankStatus, StepRecord, StepSummary
from gpu_plan.executor.supervise.causes.classify import classify
from gpu_plan.executor.supervise.causes.evidence import (
    Evidence,
    RankExit,
    error_line,
    parse_exits,
    parse_launcher_signal,
)
from gpu_plan.executor.supervise.causes.losses import NOT_FINITE_LOSS, not_finite


def rank(
    number: int, status: RankStatus, *, at: float = 10.0, steps: int = 4, code: int | None = None, **error: object
) -> RankRecord:
    """A record of a rank that has done `steps` steps."""
    return RankRecord(
        run_id="r", attempt=1, rank=number, local_rank=number, world_size=2, pid=100 + number, host="h", device="cpu",
        status=status, started=0.0, updated=at, exit_code=code,
        steps=tuple(StepRecord(step=n + 1, seconds=0.1, micro_batches=1) for n in range(steps)),
        summary=StepSummary(steps=steps),
        error=RankError(**{"type": "ValueError", "message": "bad", **error}) if error else None,  # type: ignore[arg-type]
    )  # fmt: skip


def ended(number: int, code: int, *, first: bool = False) -> RankExit:
    return RankExit(rank=number, exit_code=code, pid=100 + number, first=first)


def evidence(ranks: Sequence[RankRecord], *exits: RankExit, code: int = 1) -> Evidence:
    return Evidence(launcher_code=code, ranks=tuple(ranks), exits=exits, world_size=2)


def test_all_done_is_success() -> None:
    found = classify(evidence([rank(0, "done"), rank(1, "done")], code=0))
    assert (found.cause, found.exit_code, found.culprit) == ("success", 0, None)


def test_success_without_a_complete_record_says_so() -> None:
    assert "rank 1" in classify(evidence([rank(0, "done"), rank(1, "running")], code=0)).explanation


def test_abort_after_all_records_are_complete_is_success() -> None:
    found = classify(evidence([rank(0, "done"), rank(1, "done")], ended(0, -signal.SIGABRT, first=True)))
    assert (found.cause, found.exit_code) == ("success", 0)


@pytest.mark.parametrize("other", ["running", "peer_failure"])
def test_abort_while_another_rank_is_not_done_is_a_crash(other: RankStatus) -> None:
    found = classify(evidence([rank(0, "done"), rank(1, other)], ended(0, -signal.SIGABRT, first=True)))
    assert (found.cause, found.culprit, found.exit_code) == ("signal", 0, 134)


def test_abort_with_a_rank_missing_is_a_crash() -> None:
    assert classify(evidence([rank(0, "done")], ended(0, -signal.SIGABRT, first=True))).cause == "signal"


def test_out_of_memory_beats_the_agents_root_cause() -> None:
    failed = rank(1, "oom", at=11.0, code=1, type="torch.OutOfMemoryError", message="CUDA", requested_bytes=2**30)
    found = classify(evidence([rank(0, "peer_failure", at=10.0), failed], ended(0, 1, first=True), ended(1, 1)))
    assert (found.cause, found.culprit, found.exit_code) == ("oom", 1, 1)
    assert "1,024.0 MiB" in found.explanation
    assert "after step 4" in found.explanation


def test_killed_rank_is_named_though_its_peer_complained_first() -> None:
    found = classify(
        evidence([rank(0, "peer_failure", code=1), rank(1, "running")], ended(0, 1, first=True), ended(1, -9))
    )
    assert (found.cause, found.culprit, found.exit_code) == ("signal", 1, 137)
    assert "SIGKILL" in found.explanation


def test_kernel_out_of_memory_kill_is_told_from_another_sigkill() -> None:
    whole = evidence([rank(0, "peer_failure"), rank(1, "running")], ended(1, -9, first=True))
    assert classify(whole).cause == "signal"
    assert classify(replace(whole, oom_kills=1)).cause == "host_oom"


def test_agent_killing_a_deaf_peer_does_not_hide_the_exception() -> None:
    failed = rank(0, "exception", code=1, message="bad")
    found = classify(evidence([failed, rank(1, "running")], ended(0, 1, first=True), ended(1, -9)))
    assert (found.cause, found.culprit) == ("exception", 0)


def test_own_kills_do_not_count() -> None:
    whole = replace(
        evidence([rank(0, "exception", code=1, message="x"), rank(1, "running")], ended(1, -9, first=True)),
        killed=frozenset({101}),
    )
    assert (classify(whole).cause, classify(whole).culprit) == ("exception", 0)


def test_sigterm_by_the_agent_is_no_cause_but_from_outside_it_is() -> None:
    failed = rank(0, "exception", code=1, message="x")
    by_agent = evidence([failed, rank(1, "interrupted")], ended(0, 1, first=True), ended(1, -15))
    assert classify(by_agent).cause == "exception"
    outside = evidence([rank(0, "peer_failure"), rank(1, "interrupted")], ended(1, -15, first=True), ended(0, 1))
    assert (classify(outside).cause, classify(outside).culprit) == ("signal", 1)


def test_earliest_of_two_exceptions_is_the_culprit() -> None:
    first, second = rank(1, "exception", at=5.0, message="a"), rank(0, "exception", at=5.5, message="b")
    found = classify(evidence([second, first], ended(0, 1, first=True), ended(1, 1)))
    assert found.culprit == 1


def test_exit_code_of_the_culprit_is_passed_on() -> None:
    found = classify(evidence([rank(0, "peer_failure"), rank(1, "exit", code=3)], ended(1, 3, first=True)))
    assert (found.cause, found.culprit, found.exit_code) == ("exit", 1, 3)


def test_os_exit_leaves_a_running_record_and_its_code() -> None:
    found = classify(evidence([rank(0, "peer_failure", code=1), rank(1, "running")], ended(1, 7), ended(0, 1)))
    assert (found.cause, found.culprit, found.exit_code) == ("exit", 1, 7)


def test_parameter_mismatch_is_a_preflight_failure() -> None:
    bad = rank(0, "exit", code=4, type="gpu_plan.ParameterMismatch", message="110 parameters, the plan has 100")
    found = classify(evidence([bad, rank(1, "peer_failure")], ended(0, 4, first=True)))
    assert (found.cause, found.exit_code) == ("deviation", 4)
    assert "the plan has 100" in found.explanation


def test_launcher_without_ranks() -> None:
    found = classify(Evidence(launcher_code=1, launcher_error="ModuleNotFoundError: no torch"))
    assert (found.cause, found.exit_code) == ("launcher", 125)
    assert "no torch" in found.explanation


@pytest.mark.parametrize(
    ("code", "cause"),
    [(-signal.SIGTERM, "interrupted"), (-signal.SIGINT, "interrupted"), (-signal.SIGKILL, "launcher")],
)
def test_launcher_ended_by_a_signal(code: int, cause: str) -> None:
    assert classify(evidence([rank(0, "running"), rank(1, "running")], code=code)).cause == cause


def test_launcher_told_to_end_is_an_interrupt() -> None:
    whole = evidence([rank(0, "interrupted"), rank(1, "interrupted")], ended(0, -15, first=True), ended(1, -15))
    found = classify(replace(whole, launcher_signal="SIGTERM"))
    assert (found.cause, found.exit_code) == ("interrupted", 143)


def test_interrupt_of_the_supervisor_beats_everything() -> None:
    whole = replace(evidence([rank(0, "oom", code=1, message="x")]), interrupted="SIGINT")
    assert (classify(whole).cause, classify(whole).exit_code) == ("interrupted", 130)


def test_hang_names_the_rank_behind_and_the_stacks() -> None:
    whole = replace(evidence([rank(0, "running", steps=5), rank(1, "running", steps=4)]), hung_seconds=61.0)
    found = classify(replace(whole, stacks="/runs/x/logs"))
    assert (found.cause, found.culprit) == ("hang", 1)
    assert "/runs/x/logs" in found.explanation


def test_ranks_that_are_done_and_do_not_leave_have_not_hung() -> None:
    whole = replace(evidence([rank(0, "done"), rank(1, "done")], code=-9), hung_seconds=61.0)
    assert classify(whole).cause == "success"


REPORT = """
[default0]:Failures: printed by the user
============================================================
gpu_plan.executor.runner FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_10:00:01
  host      : vm
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 11)
  error_file: /x/error.json
  traceback : Traceback (most recent call last):
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_10:00:00
  host      : vm
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 12)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 12
============================================================
"""


def test_report_of_the_agent_is_read() -> None:
    assert parse_exits(REPORT) == (
        RankExit(rank=1, exit_code=-9, pid=12, first=True),
        RankExit(rank=0, exit_code=1, pid=11),
    )
    assert parse_exits("nothing failed\nFailures: of mine\n") == ()


def test_single_process_launch_is_read() -> None:
    killed = "subprocess.CalledProcessError: Command '['python', 'x']' died with <Signals.SIGKILL: 9>."
    left = "subprocess.CalledProcessError: Command '['python', 'x']' returned non-zero exit status 3."
    assert [end.exit_code for end in parse_exits(killed)] == [-9]
    assert [end.exit_code for end in parse_exits(left)] == [3]


def test_signal_of_the_agent_is_read() -> None:
    text = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15\n"
    assert parse_launcher_signal(text) == signal.SIGTERM
    assert parse_launcher_signal("all is well") is None


def test_error_line_is_the_error_not_the_frame_around_it() -> None:
    assert error_line("Traceback\nImportError: no x\n=====\n") == "ImportError: no x"
    assert error_line("something\n-----\n") == "something"
    assert error_line("") == ""


def test_a_peer_on_another_host_is_said_to_have_failed_there() -> None:
    alone = Evidence(launcher_code=1, ranks=(rank(0, "peer_failure", code=1),), exits=(ended(0, 1, first=True),))
    assert "is not known" in classify(alone).explanation
    found = classify(replace(alone, hosts=2))
    assert (found.cause, found.culprit) == ("exception", None)
    assert "one on another host failed first: the run there says why" in found.explanation


def losing(number: int, first: int | None, count: int, last: str | None, word: str = "nan") -> RankRecord:
    """A rank of 8 steps whose loss was `word` at `first`, and `count` times."""
    made = rank(number, "done", steps=8)
    odd = range(first or 0, (first or 0) + count)
    steps = tuple(replace(step, not_finite=word if step.step in odd else None) for step in made.steps)
    summary = StepSummary(steps=8, not_finite_steps=count, first_not_finite=first, last_not_finite=last)
    return replace(made, steps=steps, summary=summary)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([losing(0, None, 0, None), losing(1, None, 0, None)], ""),
        ([losing(0, 3, 6, "nan")], "the loss was NaN from step 3 on, 6 steps"),
        ([losing(0, 3, 6, "nan"), losing(1, 3, 6, "nan")], "the loss was NaN from step 3 on, 6 steps (ranks 0, 1)"),
        ([losing(0, None, 0, None), losing(1, 4, 1, None, "inf")], "the loss was infinite at step 4 (rank 1)"),
        ([losing(0, 2, 3, None)], "the loss was NaN at step 2, and was not finite at 3 steps in all"),
    ],
)
def test_losses_that_are_no_numbers_in_words(ranks: list[RankRecord], words: str) -> None:
    assert not_finite(ranks) == words


def test_a_rank_that_stopped_on_nan_is_the_cause_and_not_its_peer() -> None:
    stopped = replace(
        losing(1, 3, 1, "nan"), status="exit", exit_code=1, error=RankError(type=NOT_FINITE_LOSS, message="x")
    )
    found = classify(evidence([rank(0, "peer_failure", at=9.0), stopped], ended(1, 1, first=True)))
    assert (found.cause, found.culprit, found.exit_code) == ("nan", 1, 1)
    assert "--stop-on-nan" in found.explanation
