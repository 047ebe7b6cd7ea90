"""Where an attempt stands before its first step, and where its time went."""

from collections.abc import Mapping
from io import StringIO

from gpu_plan.commands.execute.stopwatch import Stopwatch
from gpu_plan.executor.live.figures import first_step_words, phase_words
from gpu_plan.executor.live.plain import PlainView
from gpu_plan.executor.records.run import Attempt, Phase, RunRecord, to_first_step
from gpu_plan.executor.supervise.events import Event
from gpu_plan.executor.supervise.follow.beginning import HOSTS_AGAIN, PHASE_AGAIN, Beginning
from gpu_plan.executor.supervise.follow.hosts import meeting_of
from gpu_plan.executor.supervise.follow.phases import phases, present
from gpu_plan.executor.supervise.follow.pulse import Pulse


def pulse(rank: int, started: float, **moments: float) -> Pulse:
    return Pulse(rank=rank, pid=1, status="running", started=started, updated=60.0, moments=moments)


WHOLE: Mapping[str, float] = {"torch": 20.0, "training": 33.0, "first_step": 34.5}


def test_a_phase_is_over_when_the_last_rank_has_left_it() -> None:
    first = pulse(0, 12.0, **WHOLE)
    assert present([], 2) == "launcher"
    assert present([first], 2) == "launcher"
    assert present([first, pulse(1, 13.0)], 2) == "importing torch"
    assert present([first, pulse(1, 13.0, torch=21.0)], 2) == "preparing"
    assert present([first, pulse(1, 13.0, torch=21.0, training=33.5)], 2) == "first step"
    assert present([first, pulse(1, 13.0, **WHOLE)], 2) == "steps"


def test_the_phases_of_an_attempt_sum_to_its_time() -> None:
    ranks = [pulse(0, 12.0, **WHOLE), pulse(1, 13.0, **{**WHOLE, "torch": 22.0})]
    found = phases(10.0, ranks, 2, ended=62.0)
    assert [(phase.name, phase.seconds) for phase in found] == [
        ("launcher", 3.0), ("importing torch", 9.0), ("preparing", 11.0), ("first step", 1.5), ("steps", 25.5),
        ("ending", 2.0),
    ]  # fmt: skip
    assert [phase.name for phase in phases(10.0, ranks[:1], 2, ended=62.0)] == []
    before = (Phase(name="planning", seconds=4.0),)
    assert sum(phase.seconds for phase in to_first_step(before, found)) == 28.5
    assert to_first_step(before, found[:2]) == ()


def test_an_attempt_that_made_no_step_says_how_far_it_came() -> None:
    assert [phase.name for phase in phases(10.0, [pulse(0, 12.0, torch=20.0)], 1, ended=70.0)] == [
        "launcher", "importing torch",
    ]  # fmt: skip


def test_each_phase_is_said_live_and_the_first_step_with_all_of_them() -> None:
    attempt = Attempt(number=1, command=(), started=10.0)
    record = RunRecord(
        run_id="r", status="running", script="s", script_arguments=(), working_directory="/", world_size=1, started=0.0,
        updated=0.0, supervisor_pid=1, phases=(Phase(name="planning", seconds=4.0),), attempts=(attempt,),
    )  # fmt: skip
    whole, err = phases(10.0, [pulse(0, 12.0, **WHOLE)], 1), StringIO()
    view = PlainView(StringIO(), err)
    view(Event(kind="phase", record=record, phase="importing torch", phases=whole[:1]))
    view(Event(kind="phase", record=record, phase="steps", phases=whole))
    assert err.getvalue().splitlines() == [
        "plan: ranks started, importing torch (launcher 2.00 s)",
        "plan: first step after 28.50 s: planning 4.00 s, launcher 2.00 s, importing torch 8.00 s, preparing 13.00 s,"
        " first step 1.50 s",
    ]
    assert phase_words("steps", whole) == ""
    assert first_step_words(record, whole[:2]) == ""


def test_the_time_before_a_run_is_told_by_what_it_was_spent_on() -> None:
    times = iter((1.0, 4.0, 4.5))
    watch = Stopwatch(lambda: next(times))
    watch.ended("planning")
    watch.ended("checking")
    assert watch.phases == (Phase(name="planning", seconds=3.0), Phase(name="checking", seconds=0.5))


def test_what_takes_long_is_said_again_with_its_time() -> None:
    told: list[str] = []
    said: list[str] = []
    beginning = Beginning(
        began=10.0, expected=1, meeting=None, tell_phase=lambda name, behind: told.append(name), note=said.append
    )
    for now in (0.0, 5.0, PHASE_AGAIN + 1, PHASE_AGAIN + 2):
        assert not beginning.look((), now, list)
    assert told == ["launcher"]
    beginning.look((pulse(0, 12.0, torch=20.0),), 40.0, list)
    beginning.look((pulse(0, 12.0, **WHOLE),), 41.0, list)
    beginning.look((pulse(0, 12.0, **WHOLE),), 500.0, list)
    assert told == ["launcher", "preparing", "steps"]
    assert said == []


def test_hosts_that_have_not_come_are_named_at_once_and_again() -> None:
    said: list[str] = []
    beginning = Beginning(
        began=10.0, expected=1, meeting=meeting_of(("a:1", "b"), 0), tell_phase=lambda name, behind: None,
        note=said.append,
    )  # fmt: skip
    waits = [beginning.look((), now, list) for now in (3.0, 4.0, 3.0 + HOSTS_AGAIN)]
    assert waits == [True, True, True]
    assert said == ["waiting for 1 of 2 hosts at a:1: b", "waiting for 1 of 2 hosts at a:1: b (for 15 s)"]
    assert not beginning.look((pulse(0, 12.0),), 30.0, list)


def test_the_same_phase_again_is_said_with_its_time() -> None:
    times = iter((4.0, 40.0))
    err = StringIO()
    view = PlainView(StringIO(), err, lambda: next(times))
    record = RunRecord(
        run_id="r", status="running", script="s", script_arguments=(), working_directory="/", world_size=1, started=0.0,
        updated=0.0, supervisor_pid=1,
    )  # fmt: skip
    view(Event(kind="phase", record=record, phase="preparing"))
    view(Event(kind="phase", record=record, phase="preparing"))
    assert err.getvalue().splitlines()[-1] == "plan: still preparing the script's model and data, for 36.00 s"
