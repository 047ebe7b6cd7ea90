"""Calibrations: what is written is read, what was changed or is another machine's is refused, and plans rest on it."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_plan import cli
from gpu_plan.commands.calibrate import busy_words
from gpu_plan.commands.execute.learn import compared, learn
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.speed.calibration import store
from gpu_plan.planner.speed.calibration.machine import parse_driver, processor_name, this_machine
from gpu_plan.planner.speed.calibration.rates import exchange_seconds, product_rate
from gpu_plan.planner.speed.calibration.record import (
    Calibration,
    Exchange,
    Fused,
    Machine,
    Product,
    Run,
    from_json,
    to_json,
)
from gpu_plan.planner.speed.model import OptimizerWork, StepWork
from gpu_plan.planner.speed.roofline import RooflineModel
from tests.support.synthetic_trace import Op, trace_of

CPU = parse_cluster("cpu", ram_bytes=64 << 30)


def record(machine: Machine | None = None) -> Calibration:
    return Calibration(
        machine=machine or this_machine(CPU),
        made="2026-01-01T00:00:00+00:00",
        torch="2.13.0",
        products=(
            Product(dtype="float32", flops=1e6, rate=(4e9, 5e9, 6e9)),
            Product(dtype="float32", flops=1e10, rate=(8e10, 1e11, 1.2e11)),
        ),
        attention=(Fused(dtype="float32", direction="forward", rate=(1e10, 2e10, 4e10)),),
        memory=(8e9, 1e10, 1.2e10),
        operator_seconds=(2e-5, 1e-5, 5e-6),
        exchanges=(
            Exchange(kind="all_reduce", ranks=2, num_bytes=4096, seconds=(4e-4, 2e-4, 1e-4)),
            Exchange(kind="all_reduce", ranks=2, num_bytes=1 << 20, seconds=(4e-3, 2e-3, 1e-3)),
        ),
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_written_is_read() -> None:
    assert from_json(to_json(record()), "here") == record()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[1]", "wrote"),
        (to_json(record()).replace('"version": 1', '"version": 7'), "version 7"),
        (to_json(record()).replace("100000000000.0", "900000000000.0"), "digest"),
        (to_json(record()).replace("2.13.0", "2.14.0"), "digest"),
    ],
)
def test_what_was_not_written_so_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as problem:
        from_json(text, "record.json")
    assert "\n" not in str(problem.value)
    assert "plan calibrate" in str(problem.value)


def test_a_record_of_another_machine_is_refused_with_the_difference(cache: Path) -> None:
    assert store.kept_for(CPU) == store.Kept()
    store.write_record(store.path_of("cpu"), record())
    assert store.kept_for(CPU).record == record()
    other = replace(record().machine, device="Another Processor")
    store.write_record(store.path_of("cpu"), record(other))
    kept = store.kept_for(CPU)
    assert kept.record is None
    assert f"Another Processor, here {this_machine(CPU).device}" in kept.refused


def test_power_limit_and_driver_are_part_of_a_machine() -> None:
    one = Machine(device="NVIDIA H100", gpu="h100", devices=8, driver="550.54", power_limit_watts=700.0)
    other = replace(one, driver="560.1", power_limit_watts=500.0)
    assert one.differences(other) == ("driver 550.54, here 560.1", "power limit 700 W, here 500 W")
    assert parse_driver("550.54.15, 700.00\n550.54.15, 700.00\n") == ("550.54.15", 700.0)
    assert parse_driver("550.54.15, [N/A]\n") == ("550.54.15", None)
    assert parse_driver("") == ("", None)


def test_a_processor_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Processor 3000\n")
    assert processor_name(tmp_path / "cpuinfo") == "A Processor 3000"
    assert processor_name(tmp_path / "absent")


def test_products_go_by_their_size_and_collectives_by_theirs() -> None:
    found = product_rate(record(), "float32")
    assert found is not None
    rate, sizes = found
    assert rate.bounds == (pytest.approx(8e10), 1e11, pytest.approx(1.2e11))
    assert sizes.at(np.array([1.0, 1e6, 1e8, 1e12])).tolist() == pytest.approx([0.05, 0.05, 0.525, 1])
    assert product_rate(record(), "float16") is None
    small = exchange_seconds(record(), "all_reduce", 2, 1)
    large = exchange_seconds(record(), "all_reduce", 4, 2 << 20)
    assert small is not None
    assert large is not None
    assert small.bounds == pytest.approx((4e-4, 2e-4, 1e-4))
    assert large.expected == pytest.approx(4e-3)
    assert exchange_seconds(record(), "all_gather", 2, 1) is None


def test_a_step_rests_on_what_was_measured_and_says_so() -> None:
    trace = trace_of(Op(flops=1e10, moved=1e6), Op(moved=1e9, phase=1))
    work = StepWork(
        trace=trace, micro_batch=1, compute_dtype="float32", optimizer=OptimizerWork(parameter_bytes_read_written=0)
    )
    published, here = (RooflineModel(kept).step_time(work, CPU) for kept in (None, record()))
    assert published.basis == "assumed"
    assert here.basis == "measured"
    assert here.step_seconds == pytest.approx(0.1 + 0.1 + 2e-5)
    assert here.low_seconds < here.step_seconds < here.high_seconds
    assert any("measured here" in note for note in here.notes)


def test_what_runs_took_is_inside_the_interval() -> None:
    trace = trace_of(Op(flops=1e10, moved=1e6))
    work = StepWork(
        trace=trace, micro_batch=1, compute_dtype="float32", optimizer=OptimizerWork(parameter_bytes_read_written=0)
    )
    for ratio in (5.0, 0.2):
        runs = (Run(what="x", expected_seconds=1.0, measured_seconds=ratio),) * 3
        before, after = (RooflineModel(kept).step_time(work, CPU) for kept in (record(), replace(record(), runs=runs)))
        assert after.step_seconds == before.step_seconds
        ends = (
            min(before.low_seconds, ratio * before.step_seconds),
            max(before.high_seconds, ratio * before.step_seconds),
        )
        assert (after.low_seconds, after.high_seconds) == pytest.approx(ends)


def test_runs_teach_once_there_are_three(cache: Path) -> None:
    assert store.remember("cpu", Run(what="x", expected_seconds=1.0, measured_seconds=2.0)) is None
    store.write_record(store.path_of("cpu"), record())
    for measured in (2.0, 3.0, 4.0):
        grown = store.remember("cpu", Run(what="x", expected_seconds=2.0, measured_seconds=measured))
    assert grown is not None
    assert grown.learnt == pytest.approx(1.5)
    assert len(store.read_record(store.path_of("cpu")).runs) == 3


def test_the_verb_shows_imports_and_forgets(cache: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["calibrate", "--gpus", "cpu", "--show"]) == 2
    assert "run `plan calibrate`" in capsys.readouterr().err
    file = tmp_path / "record.json"
    file.write_text(to_json(record()))
    assert cli.main(["calibrate", "--gpus", "cpu", "--import", str(file)]) == 0
    assert "products float32" in capsys.readouterr().out
    assert cli.main(["calibrate", "--gpus", "cpu", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["torch"] == "2.13.0"
    file.write_text(to_json(record(replace(record().machine, processors=999))))
    assert cli.main(["calibrate", "--gpus", "cpu", "--import", str(file)]) == 2
    assert "processors 999" in capsys.readouterr().err
    assert cli.main(["calibrate", "--gpus", "cpu", "--show", "-o", str(file)]) == 3
    assert cli.main(["calibrate", "--gpus", "cpu", "--show", "--forget"]) == 2
    assert cli.main(["calibrate", "--gpus", "cpu", "--forget"]) == 0
    assert not store.path_of("cpu").exists()
    assert cli.main(["calibrate", "--gpus", "8xH100"]) == 2
    assert "only this machine" in capsys.readouterr().err


def run_of(status: str = "succeeded", steps: int = 8, medians: tuple[float | None, ...] = (1.5, 2.0)) -> Any:
    """As much of a run's folder as is compared."""
    strategy = SimpleNamespace(name="ddp", micro_batch_size=4)
    plan = SimpleNamespace(speed=SimpleNamespace(step_seconds=1.0), strategy=strategy, inference=None)
    saved = SimpleNamespace(plan=plan, model=SimpleNamespace(id="tiny"), cluster={"gpu_id": "cpu"})
    ranks = [SimpleNamespace(summary=SimpleNamespace(steps=steps, seconds_median=median)) for median in medians]
    return SimpleNamespace(status=status, plan=saved, ranks=ranks)


def test_a_run_is_compared_by_its_slowest_rank_and_kept(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_record(store.path_of("cpu"), record())
    learn(run_of())
    assert "a step took 2 s, 1 s were expected (2.00 times); the first run compared" in capsys.readouterr().err
    assert store.read_record(store.path_of("cpu")).runs == (
        Run(what="tiny: ddp, micro batch 4", expected_seconds=1.0, measured_seconds=2.0),
    )


@pytest.mark.parametrize(
    "run", [run_of(status="succeeded_not_as_planned"), run_of(steps=3), run_of(medians=()), run_of(medians=(1.0, None))]
)
def test_a_run_that_says_too_little_teaches_nothing(run: Any) -> None:
    assert compared(run) is None


def test_a_busy_machine_is_told_before_it_is_measured() -> None:
    assert busy_words(0.4, 2) is None
    assert busy_words(8.0, 64) is None
    assert "load 12.7 on 2 processors" in (busy_words(12.71, 2) or "")
