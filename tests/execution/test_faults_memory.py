"""A rank beyond its memory: the next plan keeps the effective batch, and goes on where the job was saved."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from executor.job import Job
from planner.plan_io import load
from tests.support import fault_model
from tests.support.fault_job import job
from tests.support.fault_runs import run

BUDGET = ("--budget", "220", "--steps", "4", "--save-every", "1")


def planned(folder: Path, *arguments: str, micro_batch: int = 32) -> Job:
    """A job whose plan the planner made, so that it can make the next one."""
    shutil.copy(fault_model.__file__, folder)
    words = ("fault_model:wide_net", "--gpus", "2xcpu", "--pin", "--strategy", "ddp", "--precision", "fp32")
    batch = ("--micro-batch", str(micro_batch), "--grad-accum", "1", "--save", "plan.json")
    subprocess.run((sys.executable, "-m", "planner", *words, *batch), cwd=folder, check=True, capture_output=True)
    return replace(job(folder, *arguments), saved=load(folder / "plan.json"), check_parameters=True)


def test_out_of_memory_is_replanned_and_resumed(tmp_path: Path) -> None:
    batches = tmp_path / "batches"
    ended = run(planned(tmp_path, *BUDGET, "--fault", "memory", "--batches", str(batches)))
    assert ended.causes == ["oom", "success"]
    first, second = ended.record.attempts
    assert "33554432" in first.explanation
    assert second.changes[0].startswith(
        "out of memory, so micro batch 32 → 16 with accumulation 1 → 2; the global batch"
    )
    assert any("the plan counts on" in line for line in second.changes)
    assert batches.read_text().split("\n")[:2] == ["32 1", "16 2"]
    assert (second.first_step, second.last_step) == (3, 4)
    assert str(second.resumed_from).endswith("step-2")
    assert (first.strategy["global_batch_size"], second.strategy["global_batch_size"]) == (64, 64)
    assert not ended.orphans


@pytest.mark.slow
def test_the_ladder_goes_on_until_it_fits(tmp_path: Path) -> None:
    batches = tmp_path / "batches"
    ended = run(planned(tmp_path, "--budget", "110", "--steps", "2", "--batches", str(batches)))
    assert ended.causes[0] == "oom"
    assert ended.record.status == "succeeded"
    assert len(set(batches.read_text().split("\n")[:-1])) == len(ended.causes)
    assert not ended.orphans


@pytest.mark.slow
def test_a_batch_that_the_script_fixes_is_said_not_to_change(tmp_path: Path) -> None:
    ended = run(planned(tmp_path, "--budget", "220", "--steps", "2", "--batch", "32"))
    assert ended.causes[0] == "oom"
    lines = (*ended.record.attempts[-1].changes, ended.record.message)
    assert any("your own words" in line for line in lines)
    assert not ended.orphans
