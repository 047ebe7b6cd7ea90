"""A script that makes another effective batch than planned: refused before the launch, or run and said to be so."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.read_run import read_whole
from gpu_plan.executor.run_folder import RunFolder, create
from gpu_plan.executor.supervise.supervisor import supervise
from gpu_plan.planner.errors import PreflightError
from gpu_plan.planner.plan.files import save
from gpu_plan.reports.run.compare import compare_run
from gpu_plan.reports.run.text import render_run_text
from tests.support.fault_job import job, saved_plan
from tests.support.fault_runs import QUICK

SCRIPT = Path(__file__).parent / "jobs" / "two_steps.py"
BOTH = "8 samples would make an optimizer step, 4 are planned: two_steps.py has micro batch 4 and accumulation 2"


def test_it_is_refused_with_both_numbers_and_nothing_is_launched(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(saved_plan(processes=1), tmp_path / "plan.json")
    assert main(["--plan", "plan.json", "--execute", str(SCRIPT)]) == 4
    said = capsys.readouterr().err.splitlines()[-1]
    assert BOTH in said
    assert "--micro-batch 4 --grad-accum 2" in said
    assert "--allow-deviation runs it as it is" in said
    assert not (tmp_path / "runs").exists()
    assert main(["--plan", "plan.json", "--execute", str(SCRIPT), "--dry-run"]) == 4
    assert main(["--plan", "plan.json", "--execute", str(SCRIPT), "--dry-run", "--allow-deviation"]) == 0
    assert f"not applied: {BOTH}" in capsys.readouterr().err


def test_from_python_it_is_refused_too(tmp_path):
    with pytest.raises(PreflightError, match="8 samples would make an optimizer step, 4 are planned"):
        supervise(job(tmp_path, processes=1, script=SCRIPT), limits=QUICK)
    (folder,) = (tmp_path / "runs").iterdir()
    record = RunFolder(folder).read_run()
    assert (record.status, record.exit_code, record.attempts) == ("failed", 4, ())


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "status"), [(1, "succeeded_not_as_planned"), (2, "succeeded")])
def test_allowed_it_ends_as_not_as_planned(tmp_path, steps, status):
    asked = replace(job(tmp_path, processes=1, script=SCRIPT, accumulation=steps), allow_deviation=steps == 1)
    place = create(tmp_path)
    record = supervise(asked, folder=place, limits=QUICK)
    assert (record.status, record.exit_code) == (status, 0)
    report = render_run_text(read_whole(place), compare_run(read_whole(place)))
    deviates = steps == 1
    assert ("SUCCEEDED, NOT AS PLANNED" in report) is deviates
    assert ("2 backward passes made an optimizer step, planned are 1" in report) is deviates
