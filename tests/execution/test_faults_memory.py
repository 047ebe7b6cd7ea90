"""A rank beyond its memory: the next plan keeps the effective batch, and goes on where the job was saved."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.executor.job import Job
from gpu_plan.planner.plan.files import load
from tests.support import fault_model
from tests.support.fault_job import job
from tests.support.fault_runs import run

BUDGET = ("--budget", "220", "--steps", "4", "--save-every", "1")


@contextlib.contextmanager
def control_group(mebibytes: int) -> Iterator[Path]:
    """A control group with little memory; skips where none can be made."""
    own = next((line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()
                if ":memory:" in line), None)  # fmt: skip
    base = Path("/sys/fs/cgroup/memory" + own) if own is not None else Path("/sys/fs/cgroup")
    group = base / f"plan-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.limit_in_bytes" if own is not None else "memory.max"
        (group / limit).write_text(str(mebibytes * 2**20))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield group
    finally:
        group.rmdir()


def planned(folder: Path, *arguments: str, micro_batch: int = 32) -> Job:
    """A job whose plan the planner made, so that it can make the next one."""
    shutil.copy(fault_model.__file__, folder)
    words = ("fault_model:wide_net", "--gpus", "2xcpu", "--pin", "--strategy", "ddp", "--precision", "fp32")
    batch = ("--micro-batch", str(micro_batch), "--grad-accum", "1", "--save", "plan.json")
    subprocess.run((sys.executable, "-m", "gpu_plan", *words, *batch), cwd=folder, check=True, capture_output=True)
    return replace(job(folder, *arguments), saved=load(folder / "plan.json"), check_parameters=True)


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_kernels_kill_for_memory_is_told_from_another(tmp_path: Path) -> None:
    """The model cannot be reached by the planner: the mildest rung is taken without its figures."""
    with control_group(64) as group:
        arguments = ("--steps", "6", "--save-every", "2", "--fault", "host-memory", "--at", "4", "--cgroup", str(group))
        ended = run(job(tmp_path, *arguments))
    assert ended.causes == ["host_oom", "success"]
    first, second = ended.record.attempts
    assert first.culprit == 1
    assert "killed by the kernel" in first.explanation
    assert "micro batch 4 → 2 with accumulation 1 → 2; the global batch stays 8" in second.changes[0]
    assert str(second.resumed_from).endswith("step-2")
    assert second.last_step == 6
    assert not ended.orphans
