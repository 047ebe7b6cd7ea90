"""What is shown of a run while it runs."""

import io
import time
from dataclasses import replace
from pathlib import Path

from gpu_plan.executor.live.figures import (
    attempt_words,
    end_words,
    memory_words,
    not_finite_words,
    progress_words,
    seconds_words,
)
from gpu_plan.executor.live.plain import PlainView
from gpu_plan.executor.live.show import live
from gpu_plan.executor.records.run import Attempt, RunRecord
from gpu_plan.executor.supervise.events import Event
from gpu_plan.executor.supervise.follow.pulse import Pulse
from tests.support.fault_job import saved_plan
from tests.support.plan_example import memory

GIB = 2**30
RECORD = RunRecord(
    run_id="20260101-000000-abcdef", status="running", script="/x/train.py", script_arguments=(),
    working_directory="/x", world_size=2, started=100.0, updated=110.0, supervisor_pid=1,
    attempts=(Attempt(number=1, command=("accelerate", "launch"), started=100.0),),
)  # fmt: skip


def pulse(rank: int, step: int | None, **more: object) -> Pulse:
    given = {"memory_bytes": 2 * GIB, "memory_kind": "in use", "loss": 1.25, "step_seconds": 0.5, "tokens": 100, **more}
    return Pulse(
        rank=rank, pid=1, status="running", started=0, updated=0, steps=step or 0, last_step=step, **given  # type: ignore[arg-type]
    )  # fmt: skip


def test_figures_are_those_of_the_rank_behind_and_the_rank_that_takes_most() -> None:
    figures = memory(capacity=8 * GIB, parameters=GIB)
    words = progress_words([pulse(0, 4), pulse(1, 5, memory_bytes=3 * GIB)], figures)
    assert words.startswith(
        "step 4 · loss 1.2500 · 500 ms per step · 90 tokens/s · most on rank 1: 3.0 GiB in use (plan"
    )
    assert progress_words([pulse(0, None)], figures) == ""
    assert progress_words([], None) == ""


def test_resident_memory_is_not_compared_as_if_it_were_the_tensors() -> None:
    words = memory_words(pulse(0, 1, memory_kind="resident"), memory(capacity=8 * GIB, parameters=GIB))
    assert words == "2.0 GiB resident (plan 1.0 GiB of tensors)"


def test_durations() -> None:
    assert [seconds_words(value) for value in (0.0214, 3.214, 125, 11_520)] == [
        "21 ms",
        "3.21 s",
        "2 min 05 s",
        "3 h 12 min",
    ]


def test_plain_lines_tell_start_first_step_end_and_pass_output_on() -> None:
    out, err, now = io.StringIO(), io.StringIO(), [0.0]
    view = PlainView(out, err, clock=lambda: now[0])
    ended = Attempt(number=1, command=(), started=100.0, ended=112.0, explanation="2 ranks done", deviations=("odd",))
    view(Event(kind="run", record=RECORD))
    view(Event(kind="launch", record=RECORD, command=("accelerate", "launch"), plan=saved_plan()))
    view(Event(kind="output", record=RECORD, text="hello\n"))
    view(Event(kind="output", record=RECORD, text="careful\n", error_stream=True))
    for step, moment in ((1, 1.0), (2, 2.0), (3, 12.0)):
        now[0] = moment
        view(Event(kind="pulse", record=RECORD, pulses=(pulse(0, step),)))
    view(Event(kind="attempt", record=RECORD, attempt=ended))
    view(Event(kind="end", record=RECORD))
    lines = err.getvalue().splitlines()
    assert out.getvalue() == "hello\n"
    assert next(line for line in lines if "loss" in line).startswith("plan: step 1")
    assert len([line for line in lines if "loss" in line]) == 2
    assert "careful" in lines
    assert "plan: attempt 1: accelerate launch" in lines
    assert "plan: attempt 1 ended after 12.00 s: 2 ranks done" in lines
    assert "plan: deviation: odd" in lines


def test_words_of_the_end() -> None:
    attempt = Attempt(number=2, command=(), started=1.0, ended=1.5, explanation="rank 1 was killed")
    assert attempt_words(attempt) == "attempt 2 ended after 500 ms: rank 1 was killed"
    assert "exit code 3" in end_words(
        RunRecord(**{name: getattr(RECORD, name) for name in RECORD.__slots__} | {"exit_code": 3, "status": "failed"})  # type: ignore[arg-type]
    )


class Terminal(io.StringIO):
    """Text that says it goes to a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_standing_figures_and_the_output_above(monkeypatch: object, tmp_path: Path) -> None:
    import pytest

    assert isinstance(monkeypatch, pytest.MonkeyPatch)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    out, err = Terminal(), Terminal()
    with live(out, err) as observe:
        observe(Event(kind="run", record=RECORD))
        observe(Event(kind="launch", record=RECORD, command=("accelerate",), plan=saved_plan()))
        observe(Event(kind="pulse", record=RECORD, pulses=(pulse(0, 7), pulse(1, 7))))
        observe(Event(kind="output", record=RECORD, text="50%\r100%\ndone\n"))
        for _ in range(2400):
            if "step 7" in err.getvalue():
                break
            time.sleep(0.1)
        observe(Event(kind="end", record=RECORD))
    text = err.getvalue()
    assert "rank 1" in text
    assert "step 7" in text
    assert "100%" in text
    assert "50%" not in text
    assert "\x1b[3" not in text  # no colours
    assert out.getvalue() == ""


def test_elsewhere_lines_are_plain() -> None:
    err = io.StringIO()
    with live(io.StringIO(), err) as observe:
        observe(Event(kind="run", record=RECORD))
    assert err.getvalue() == "plan: run 20260101-000000-abcdef\n"


def test_a_loss_that_is_no_number_is_said_once_at_once_and_stays_in_the_figures() -> None:
    err = io.StringIO()
    view = PlainView(io.StringIO(), err, clock=lambda: 0.0)
    view(Event(kind="launch", record=RECORD, command=("x",), plan=saved_plan()))
    view(Event(kind="pulse", record=RECORD, pulses=(pulse(0, 1), pulse(1, 1))))
    odd = {"loss": float("nan"), "not_finite": "nan", "first_not_finite": 2}
    for step in (2, 3):
        view(Event(kind="pulse", record=RECORD, pulses=(pulse(0, step), pulse(1, step, **odd))))
    assert err.getvalue().count("plan: the loss of rank 1 is NaN at step 2; --stop-on-nan ends a run there") == 1
    assert "loss nan" in progress_words([pulse(0, 3, **odd)], None)
    assert "is infinite at step 2" in not_finite_words([pulse(0, 3, not_finite="-inf", first_not_finite=2)])
    assert not_finite_words([pulse(0, 3)]) == ""


def test_a_run_that_was_not_as_planned_ends_so() -> None:
    assert end_words(replace(RECORD, status="succeeded_not_as_planned", ended=110.0)).startswith(
        "succeeded, not as planned, 10.00 s"
    )
