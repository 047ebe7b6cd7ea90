"""Files that were written before `gpu_plan` was one package are read: plans, a sweep, a baseline, records of runs.

They were made by the code of the time: saved plans of pythia-70m, `plan check --update`, and two runs of a small script
on two CPU processes, one of which trained another model than its plan's. Only paths were replaced.
"""

import json
import shutil
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.read_run import read_whole
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.planner.plan.files import load, load_any
from gpu_plan.planner.regression.baseline import baseline_from_json

HERE = Path(__file__).resolve().parents[2] / "golden" / "written_before"
RUNS = sorted((HERE / "records").iterdir())


@pytest.mark.parametrize("name", ["zero3", "fsdp", "generate"])
def test_a_saved_plan(name, capsys):
    saved = load(str(HERE / f"{name}.json"))
    assert saved.plan.fits
    assert main(["report", str(HERE / f"{name}.json")]) == 0
    assert saved.model.id in capsys.readouterr().out


def test_two_plans_side_by_side(capsys):
    assert main(["diff", str(HERE / "zero3.json"), str(HERE / "fsdp.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_a_saved_plan_becomes_launch_files_that_start_this_package(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    assert main(["export", str(HERE / "zero3.json"), "--to", "accelerate", "--script", str(script), "-o", "out"]) == 0
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert any("zero_optimization" in text or "zero_stage" in text for text in files.values()), sorted(files)


def test_a_sweep(capsys):
    assert main(["report", str(HERE / "sweep.json"), "--format", "md"]) == 0
    assert "seq-len" in capsys.readouterr().out


def test_a_baseline():
    path = HERE / "baselines" / "small.json"
    assert baseline_from_json(path.read_text(encoding="utf-8"), str(path), "small").verdict == "fits"


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_run(folder, tmp_path, monkeypatch, capsys):
    whole = read_whole(RunFolder(folder))
    assert whole.record.attempts[0].command.count("executor.runner") == 1, "it was made before the move"
    assert {rank.status for rank in whole.ranks} <= {"done", "exit"}
    shutil.copytree(HERE / "records", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert folder.name in capsys.readouterr().out
    assert main(["report", folder.name]) == 0
    assert whole.record.status in capsys.readouterr().out.lower()


def test_there_is_one_of_each_kind():
    assert [json.loads((folder / "run.json").read_text())["status"] for folder in RUNS] == ["failed", "succeeded"]
    assert load_any(str(HERE / "generate.json")).workload["task"] == "infer"
