"""The truth about endings: who left with 0, who was stopped, what plan itself killed, who has not come."""

import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.supervise.causes.classify import classify
from gpu_plan.executor.supervise.causes.departure import departed
from gpu_plan.executor.supervise.causes.evidence import Evidence, RankExit, error_line, parse_exits
from gpu_plan.executor.supervise.causes.stacks import Place
from gpu_plan.executor.supervise.follow.heartbeat import Heartbeat
from gpu_plan.executor.supervise.follow.hosts import Connection, Meeting, established, hosts_seen, meeting_of
from gpu_plan.executor.supervise.follow.pulse import Pulse
from gpu_plan.executor.supervise.limits import Limits, read_limits
from tests.unit.supervise.test_supervise_classify import ended, evidence, rank


def lost(number: int, at: float = 11.0) -> RankRecord:
    return rank(number, "peer_failure", at=at, code=1, type="RuntimeError", message="Connection closed by peer")


def test_a_rank_that_left_by_sys_exit_is_the_cause_of_its_peers_failure() -> None:
    left = replace(rank(1, "done", steps=2), left="SystemExit at /home/me/train.py:88")
    found = classify(evidence([lost(0), left], ended(0, 1, first=True)))
    assert (found.cause, found.culprit, found.exit_code) == ("exit", 1, 1)
    assert "rank 1 left with exit code 0 after step 2 (SystemExit at /home/me/train.py:88)" in found.explanation


def test_a_rank_that_left_by_os_exit_is_the_cause_though_its_record_still_says_that_it_runs() -> None:
    found = classify(evidence([lost(0), rank(1, "running", steps=2)], ended(0, 1, first=True)))
    assert (found.cause, found.culprit, found.exit_code) == ("exit", 1, 1)
    assert "os._exit(0)" in found.explanation


def test_a_rank_whose_script_ended_early_is_told_so() -> None:
    found = classify(evidence([lost(0), rank(1, "done", steps=2)], ended(0, 1, first=True)))
    assert "its script had ended" in found.explanation


def test_who_ended_well_is_not_blamed_for_anothers_exception() -> None:
    failed = rank(0, "exception", code=1, message="bad")
    assert classify(evidence([failed, rank(1, "done")], ended(0, 1, first=True))).culprit == 0


def test_who_ended_well_is_not_blamed_for_anothers_death() -> None:
    found = classify(evidence([lost(0), rank(1, "done"), rank(2, "running")], ended(2, -9, first=True), ended(0, 1)))
    assert (found.cause, found.culprit) == ("signal", 2)


def test_a_peer_that_gloo_aborts_after_its_loss_is_not_the_cause() -> None:
    found = classify(evidence([lost(0), rank(1, "done", steps=1)], ended(0, -signal.SIGABRT, first=True)))
    assert (found.cause, found.culprit) == ("exit", 1)


def test_what_a_worker_of_a_dataloader_raised_is_said_not_only_that_it_did() -> None:
    message = (
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        + '  File "/long/way/to/torch/utils/data/_utils/worker.py", line 1, in f\n' * 9
        + "ValueError: a bad sample\n"
    )
    found = classify(evidence([lost(0), rank(1, "exception", code=1, message=message)], ended(1, 1, first=True)))
    assert (
        "Caught ValueError in DataLoader worker process 0. ValueError: a bad sample after step 4" in found.explanation
    )


def hung(*ranks: RankRecord, **more: object) -> Evidence:
    return replace(Evidence(launcher_code=-9, ranks=ranks, world_size=2, hung_seconds=61.0), **more)  # type: ignore[arg-type]


WAITS = (Place(rank=0, where="train.py:9 in main", waits=True),)


def test_a_stopped_rank_is_the_one_that_hangs_not_its_waiting_peer() -> None:
    found = classify(
        hung(rank(0, "running", steps=4), rank(1, "running", steps=4), places=WAITS, stopped={1: "its process"})
    )
    assert (found.cause, found.culprit) == ("hang", 1)
    assert "rank 1 had been stopped by a signal (SIGSTOP; its process)" in found.explanation


@pytest.mark.parametrize("gone", [True, False])
def test_a_hang_after_a_rank_has_left_is_its_doing(gone: bool) -> None:
    left = rank(1, "running" if gone else "done", steps=3)
    found = classify(hung(rank(0, "running", steps=3), left, places=WAITS, gone=frozenset({1} if gone else ())))
    assert (found.cause, found.culprit) == ("hang", 1)
    assert "rank 1 left with exit code 0" in found.explanation


def test_who_stands_in_its_own_code_after_its_peer_has_ended_hangs_itself() -> None:
    alone = (Place(rank=0, where="train.py:9 in upload", waits=False),)
    found = classify(hung(rank(0, "running", steps=3), rank(1, "done", steps=3), places=alone))
    assert "rank 0 stood at train.py:9 in upload" in found.explanation
    assert found.culprit != 1


@pytest.mark.parametrize("kills", [0, 1])
def test_our_own_shot_is_never_the_kernels(kills: int) -> None:
    """A deaf rank of a launch without an agent, whose report does not tell the pid."""
    whole = evidence([rank(0, "running")], RankExit(rank=0, exit_code=-9, pid=0, first=True))
    ours = replace(whole, killed=frozenset({100}), oom_kills=kills, launcher_code=1)
    assert classify(ours).cause not in ("host_oom", "signal")
    assert classify(replace(whole, oom_kills=kills)).cause == ("host_oom" if kills else "signal")


@pytest.mark.parametrize("kills", [0, 1])
def test_a_launcher_that_we_shot_was_not_killed_by_anybody_else(kills: int) -> None:
    whole = replace(
        evidence([rank(0, "running"), rank(1, "running")], code=-9),
        launcher_shot=True, killed=frozenset({100}), gone=frozenset({1}), oom_kills=kills,
    )  # fmt: skip
    found = classify(whole)
    assert (found.cause, found.culprit) == ("signal", 1)
    assert "plan killed them and their launcher" in found.explanation


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_an_interrupt_ends_as_a_shell_shows_it(name: str, code: int) -> None:
    assert classify(replace(evidence([rank(0, "running")]), interrupted=name)).exit_code == code


def test_the_users_figure_bounds_a_hang_before_the_first_step() -> None:
    heart = Heartbeat(limits=read_limits({"GPU_PLAN_HANG_SECONDS": "20"}), began=0.0)
    assert not heart.hung(19.0)
    assert heart.hung(21.0)
    assert not Heartbeat(limits=Limits(), began=0.0).hung(899.0)
    assert read_limits({"GPU_PLAN_HANG_SECONDS": "20"}, "7").hang_first == 7
    heart.awaits_hosts = True
    assert not heart.hung(600.0)


def test_a_supervisor_that_was_itself_stopped_accuses_nobody() -> None:
    heart = Heartbeat(limits=Limits(hang=60), began=0.0)
    heart.see((Pulse(rank=0, pid=1, status="running", started=0.0, updated=0.0, steps=3),), 10.0)
    heart.excuse(3600.0)
    assert not heart.hung(3650.0)
    assert heart.hung(3700.0)


def test_of_two_hosts_the_one_that_has_not_come_is_named() -> None:
    meeting = meeting_of(("node-a:4000", "node-b"), 0)
    assert meeting == Meeting(hosts=("node-a", "node-b"), port=4000, here=0)
    assert meeting.words(1) == "waiting for 1 of 2 hosts at node-a:4000: node-b"
    other = meeting_of(("node-a:4000", "node-b"), 1)
    assert other is not None
    assert other.words(1) == "waiting for 1 of 2 hosts at node-a:4000: node-a"
    assert other.words(2) == "waiting for 1 of 2 hosts at node-a:4000"
    assert meeting_of(("node-a",), 0) is None


def test_hosts_are_counted_by_the_connections_that_are_not_our_own() -> None:
    server = Connection("A", 4000, "A", 51, "1")
    client = Connection("A", 51, "A", 4000, "2")
    foreign = [Connection("A", 4000, "B", 60, "3"), Connection("A", 4000, "B", 61, "4")]
    own = frozenset({"1", "2"})
    assert hosts_seen([server, client], own, 4000, head=True) == 1
    assert hosts_seen([server, client, *foreign], own, 4000, head=True) == 2
    assert hosts_seen([], frozenset(), 4000, head=False) == 1
    assert hosts_seen([client], own, 4000, head=False) == 2


def test_connections_are_read_from_the_kernel(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert established(port) == []
        with socket.create_connection(("127.0.0.1", port)):
            there, _ = server.accept()
            with there:
                assert {(one.local_port == port, one.remote_port == port) for one in established(port)} == {
                    (True, False), (False, True),
                }  # fmt: skip
    assert established(port, tmp_path) == []


# -- two candidates for one cause -----------------------------------------------------------------------------


def test_who_reported_an_exception_did_not_die_of_the_shot_that_followed() -> None:
    """The agent kills what does not end; the record stands."""
    raised = rank(0, "exception", type="ValueError", message="bad")
    found = classify(evidence([raised, rank(1, "running")], ended(0, -signal.SIGKILL, first=True)))
    assert (found.cause, found.culprit) == ("exception", 0)


def test_a_hang_is_one_however_the_launcher_ends() -> None:
    both = [rank(0, "running"), rank(1, "running")]
    hangs = replace(evidence(both, code=0), hung_seconds=900.0)
    assert classify(hangs).cause == "hang"


def test_the_last_report_of_a_log_is_read_and_its_root_cause_comes_first() -> None:
    def report(root: int, other: int) -> str:
        block = "  rank      : {0} (local_rank: {0})\n  exitcode  : {1} (pid: {2})\n"
        return (
            f"Failures:\n[1]:\n{block.format(other, 1, 8)}Root Cause (first observed failure):\n[0]:\n"
            + block.format(root, -9, 7)
        )

    exits = parse_exits(report(0, 1) + "restarted\n" + report(3, 2))
    assert [(end.rank, end.exit_code, end.first) for end in exits] == [(3, -9, True), (2, 1, False)]


def test_a_launchers_own_error_is_not_the_wrapper_around_it() -> None:
    said = "ValueError: no such port\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    assert error_line(said) == "ValueError: no such port"
    assert error_line("accelerate: error: unrecognized\n=====\n") == "accelerate: error: unrecognized"
    assert error_line("") == ""


def test_of_those_that_left_the_one_that_did_least_is_blamed() -> None:
    early, late = rank(0, "done", steps=2), rank(1, "done", steps=4)
    assert [one.rank for one in departed(evidence([late, early]))] == [0, 1]


def test_whom_plan_shot_has_not_left() -> None:
    shot = replace(evidence([rank(0, "done"), rank(1, "running")]), killed=frozenset({100}))
    assert [one.rank for one in departed(shot)] == []


def test_the_one_that_stands_outside_of_torch_is_waited_for() -> None:
    places = (*WAITS, Place(rank=1, where="train.py:30 in upload", waits=False))
    found = classify(hung(rank(0, "running", steps=3), rank(1, "running", steps=3), places=places))
    assert (found.cause, found.culprit) == ("hang", 1)
    assert "rank 1 stood at train.py:30 in upload" in found.explanation
