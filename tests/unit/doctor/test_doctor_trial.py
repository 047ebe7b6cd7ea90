"""Judging a trial launch from what its ranks told."""

from dataclasses import replace

import pytest

from gpu_plan.executor.doctor.trial import outcome
from gpu_plan.executor.doctor.trial.judge import judge
from gpu_plan.executor.doctor.trial.outcome import RankResult, Speed
from gpu_plan.executor.records.run import RunRecord
from gpu_plan.planner.plan.saved import saved_plan
from tests.support.plan_example import llama_on_8xh100

NAMES = ("gather", "reduce (sum)", "a training step equals that of one process")


def rank(number, **changes):
    made = RankResult(
        rank=number,
        world_size=2,
        pid=100 + number,
        device=f"cuda:{number}",
        device_id=f"GPU-{number}",
        backend="nccl",
        distributed_type="FSDP",
        mixed_precision="bf16",
        wrapped="FSDPSmall",
        tests=tuple(outcome.Tested(name=name, passed=True) for name in NAMES),
        speeds=(Speed(collective="all_reduce", bytes=2**28, seconds=0.001 * (number + 1)),),
    )
    return replace(made, **changes)


def record(status="succeeded"):
    return RunRecord(
        run_id="r", status=status, script="s", script_arguments=(), working_directory="/", world_size=2, started=0.0,
        updated=1.0, supervisor_pid=1, message="rank 1 was killed",
    )  # fmt: skip


@pytest.fixture(scope="module")
def saved():
    document = llama_on_8xh100()
    strategy = replace(document.best.strategy, name="fsdp", data_parallel=2, precision="bf16-mixed")
    return saved_plan(document, replace(document.best, strategy=strategy))


def ids(trial):
    return {(finding.id, finding.severity) for finding in trial.findings}


def judged(saved, *ranks, status="succeeded", seen="fsdp"):
    return judge(saved, record(status), ranks, seen, "")


def test_a_good_trial_has_nothing(saved):
    trial = judged(saved, rank(0), rank(1))
    assert ids(trial) == set()
    assert trial.passed == NAMES


def test_the_slowest_rank_tells_the_speed(saved):
    trial = judged(saved, rank(0), rank(1))
    (speed,) = trial.speeds
    assert speed.seconds == 0.002
    assert speed.bytes_per_second == 2**28 / 0.002
    assert speed.link_bytes_per_second == speed.bytes_per_second  # 2 (N-1)/N of two ranks


@pytest.mark.parametrize(
    ("ranks", "status", "seen", "expected"),
    [
        ((rank(0, world_size=1),), "succeeded", None, ("launch-world", "error")),
        ((rank(0, world_size=1), rank(0, world_size=1, pid=7)), "succeeded", "fsdp", ("launch-world", "error")),
        ((rank(0), rank(1)), "succeeded", "ddp", ("launch-strategy", "error")),
        ((rank(0), rank(1, mixed_precision="no")), "succeeded", "fsdp", ("launch-precision", "error")),
        ((rank(0), rank(1, device_id="GPU-0")), "succeeded", "fsdp", ("launch-devices", "error")),
        ((), "failed", None, ("launch-failed", "error")),
        ((rank(0), rank(1)), "failed", "fsdp", ("launch-end", "warning")),
        (
            (rank(0), rank(1, tests=(outcome.Tested(name="gather", passed=False),))),
            "succeeded",
            "fsdp",
            ("launch-wrong", "error"),
        ),
        (
            tuple(rank(n, speeds=(Speed(collective="all_reduce", bytes=2**28, seconds=1.0),)) for n in range(2)),
            "succeeded",
            "fsdp",
            ("launch-slow", "warning"),
        ),
    ],
)  # fmt: skip
def test_each_fault_is_a_finding(saved, ranks, status, seen, expected):
    assert ids(judged(saved, *ranks, status=status, seen=seen)) == {expected}


def test_what_cannot_be_tried_is_said_and_no_fault(saved):
    untried = (outcome.Tested(name="gather", passed=None, detail="not under this strategy"),)
    trial = judged(saved, rank(0, tests=untried), rank(1, tests=untried))
    assert ids(trial) == set()
    assert trial.untried == ("gather",)
    assert trial.passed == ()
