"""Losses that are no finite numbers, in real runs: recorded, shown, said in the verdict; --stop-on-nan ends there."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.live.plain import PlainView
from gpu_plan.executor.read_run import read_whole
from gpu_plan.executor.run_folder import create
from gpu_plan.executor.supervise.supervisor import supervise
from gpu_plan.reports.run.compare import compare_run
from gpu_plan.reports.run.text import render_run_text
from tests.support.fault_job import job
from tests.support.fault_runs import QUICK

SCRIPT = Path(__file__).parent / "jobs" / "odd_losses.py"


def ran(folder: Path, kind: str, *, stop: bool = False):
    """The run as a whole, what was shown live, and its report."""
    asked = replace(job(folder, kind, processes=1, script=SCRIPT), stop_on_nan=stop)
    shown = io.StringIO()
    place = create(folder)
    supervise(asked, folder=place, observe=PlainView(io.StringIO(), shown), limits=QUICK)
    whole = read_whole(place)
    return whole, shown.getvalue(), render_run_text(whole, compare_run(whole))


def losses(whole) -> list[float | None]:
    return [step.loss for step in whole.ranks[0].steps]


@pytest.mark.slow
def test_a_loss_that_is_nan_from_a_step_on(tmp_path):
    whole, shown, report = ran(tmp_path, "nan")
    assert whole.status == "succeeded", whole.record
    first, second, *rest = losses(whole)
    assert math.isfinite(first)
    assert math.isfinite(second)
    assert rest == [None] * 3
    assert [step.not_finite for step in whole.ranks[0].steps] == [None, None, "nan", "nan", "nan"]
    summary = whole.ranks[0].summary
    assert (summary.last_loss, summary.last_not_finite, summary.first_not_finite) == (None, "nan", 3)
    assert "the loss was NaN from step 3 on, 3 steps" in whole.record.message
    assert "plan: the loss is NaN at step 3" in shown
    assert "loss nan" in shown
    assert "the loss was NaN from step 3 on" in report
    assert "nan" in next(line for line in report.splitlines() if line.lstrip().startswith("0 "))


@pytest.mark.slow
def test_a_loss_that_is_infinite_once(tmp_path):
    whole, shown, report = ran(tmp_path, "inf")
    assert [step.not_finite for step in whole.ranks[0].steps] == [None, None, "inf", None, None]
    assert math.isfinite(whole.ranks[0].summary.last_loss)
    assert "the loss was infinite at step 3" in whole.record.message
    assert "plan: the loss is infinite at step 3" in shown
    assert "the loss was infinite at step 3" in report


@pytest.mark.slow
def test_a_step_that_the_scaler_leaves_out_is_not_called_nan(tmp_path):
    whole, shown, report = ran(tmp_path, "overflow")
    assert whole.ranks[0].summary.steps == 4
    assert all(math.isfinite(loss) for loss in losses(whole))
    assert any("1 optimizer steps were skipped" in note for note in whole.ranks[0].notes)
    for text in (shown, report, whole.record.message):
        assert "NaN" not in text
        assert "infinite" not in text


@pytest.mark.slow
def test_stop_on_nan_ends_at_that_step_and_names_the_last_good_checkpoint(tmp_path):
    whole, shown, report = ran(tmp_path, "nan", stop=True)
    assert whole.status == "failed"
    assert whole.record.exit_code == 1
    (attempt,) = whole.record.attempts
    assert (attempt.cause, attempt.culprit, attempt.last_step) == ("nan", 0, 3)
    good = Path(whole.folder) / "checkpoints" / "step-2"
    assert good.is_dir()
    for text in (whole.record.message, shown, report):
        assert "ended by --stop-on-nan" in text
        assert f"the last good checkpoint is {good}, of step 2" in text
