"""What follows an ended attempt, and when a silent run has hung."""

from dataclasses import replace

import pytest

from gpu_plan.executor.records.run import Attempt, Cause
from gpu_plan.executor.supervise.decide import decide
from gpu_plan.executor.supervise.follow.heartbeat import Heartbeat
from gpu_plan.executor.supervise.follow.pulse import Pulse
from gpu_plan.executor.supervise.limits import Limits


def attempt(number: int, cause: Cause, *, last_step: int | None = 5, explanation: str = "") -> Attempt:
    return Attempt(
        number=number, command=(), started=0.0, cause=cause, last_step=last_step, explanation=explanation or cause
    )


@pytest.mark.parametrize("cause", ["success", "interrupted", "deviation"])
def test_nothing_follows_an_end_that_is_final(cause: Cause) -> None:
    assert decide([attempt(1, cause)], 0, 3, ranks_ran=True).action == "stop"


@pytest.mark.parametrize("cause", ["oom", "host_oom"])
def test_out_of_memory_is_replanned_without_counting_as_a_restart(cause: Cause) -> None:
    assert decide([attempt(1, cause)], 1, 0, ranks_ran=True).action == "replan"
    history = [attempt(1, cause), attempt(2, cause), attempt(3, "signal")]
    assert decide(history, 137, 1, ranks_ran=True).action == "retry"


def test_crashes_are_retried_as_often_as_told() -> None:
    history = [attempt(n, "signal", last_step=n) for n in (1, 2, 3)]
    assert [decide(history[:n], 137, 2, ranks_ran=True).action for n in (1, 2, 3)] == ["retry", "retry", "stop"]
    assert "--max-restarts" in decide(history, 137, 2, ranks_ran=True).reason


def test_the_same_exception_at_the_same_step_twice_is_no_accident() -> None:
    history = [attempt(1, "exception"), attempt(2, "exception")]
    found = decide(history, 1, 9, ranks_ran=True)
    assert found.action == "stop"
    assert "alike" in found.reason
    moved = [history[0], replace(history[1], last_step=9)]
    assert decide(moved, 1, 9, ranks_ran=True).action == "retry"
    killed = [attempt(1, "signal"), attempt(2, "signal")]
    assert decide(killed, 137, 9, ranks_ran=True).action == "retry"


def test_what_lies_in_the_code_is_not_tried_again() -> None:
    early, late = attempt(1, "exception", last_step=None), attempt(1, "exception")
    assert decide([early], 1, 3, ranks_ran=True, error_type="ModuleNotFoundError").action == "stop"
    assert decide([early], 1, 3, ranks_ran=True, error_type="OSError").action == "retry"
    assert decide([late], 1, 3, ranks_ran=True, error_type="TypeError").action == "retry"


def test_refused_arguments_are_not_tried_again() -> None:
    assert decide([attempt(1, "exit", last_step=None)], 2, 3, ranks_ran=True).action == "stop"
    assert decide([attempt(1, "exit", last_step=4)], 2, 3, ranks_ran=True).action == "retry"


def test_a_launcher_that_starts_no_rank_is_not_tried_again() -> None:
    assert decide([attempt(1, "launcher")], 125, 3, ranks_ran=False).action == "stop"
    assert decide([attempt(1, "launcher")], 125, 3, ranks_ran=True).action == "retry"


def pulse(rank: int, steps: int, seconds: float = 1.0) -> Pulse:
    return Pulse(rank=rank, pid=1, status="running", started=0, updated=0, steps=steps, step_seconds=seconds)


def beating(**limits: float) -> Heartbeat:
    return Heartbeat(limits=Limits(hang=60, hang_first=600, **limits), began=0.0)


def test_the_first_step_has_a_bound_of_its_own() -> None:
    heart = beating()
    heart.see((pulse(0, 0),), 1.0)
    assert not heart.hung(500.0)
    assert heart.hung(602.0)


def test_the_bound_is_learnt_from_steps_and_pauses() -> None:
    heart = beating()
    heart.see((pulse(0, 1, 5.0),), 10.0)
    assert heart.bound == 100.0
    heart.see((pulse(0, 2, 5.0),), 80.0)
    assert heart.bound == 210.0
    assert not heart.hung(280.0)
    assert heart.hung(291.0)


def test_a_busy_rank_is_given_more_time_but_not_for_ever() -> None:
    heart = beating(hang_busy=5)
    heart.see((pulse(0, 3),), 10.0)
    heart.active(65.0)
    assert not heart.hung(75.0)
    assert heart.hung(130.0)
    heart.active(309.0)
    assert not heart.hung(309.5)
    assert heart.hung(311.0)


def test_any_new_record_is_a_sign_of_life() -> None:
    heart = beating()
    heart.see((pulse(0, 3),), 10.0)
    heart.see((pulse(0, 3),), 65.0)
    assert not heart.hung(120.0)


def test_the_watch_can_be_turned_off() -> None:
    heart = Heartbeat(limits=Limits(hang=0), began=0.0)
    heart.see((pulse(0, 3),), 10.0)
    assert not heart.hung(1e9)


@pytest.mark.parametrize("cause", ["oom", "host_oom", "signal", "exception", "exit", "hang", "launcher"])
def test_several_hosts_do_not_go_on_apart(cause: Cause) -> None:
    found = decide([attempt(1, cause)], 1, 3, ranks_ran=True, hosts=2)
    assert found.action == "stop"
    assert "run the command again on every host" in found.reason
    assert not decide([attempt(1, "success")], 0, 3, ranks_ran=True, hosts=2).reason


def test_nothing_is_started_onto_a_full_disk() -> None:
    full = attempt(1, "disk_full")
    stopped = decide([full], 1, 3, ranks_ran=True, no_room="make room")
    assert (stopped.action, stopped.reason) == ("stop", "make room")
    assert decide([full], 1, 3, ranks_ran=True).action == "retry", "there is room again"
    assert decide([full], 1, 0, ranks_ran=True).action == "stop"


def test_which_rank_told_a_failure_first_is_chance() -> None:
    told = [f"rank {rank} raised ValueError: the data end here at train.py:19 after step 2" for rank in (1, 0)]
    history = [attempt(n, "exception", explanation=text) for n, text in enumerate(told, start=1)]
    found = decide(history, 1, 9, ranks_ran=True, error_type="ValueError")
    assert (found.action, "ended alike" in found.reason) == ("stop", True)
    other = [history[0], attempt(2, "exception", explanation=told[1].replace("ValueError", "OSError"))]
    assert decide(other, 1, 9, ranks_ran=True, error_type="OSError").action == "retry"
