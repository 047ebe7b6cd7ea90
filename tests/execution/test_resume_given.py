"""A checkpoint that the user's words name, under another plan: converted or refused before the launch, or by a rank."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.executor.checkpoints.find import open_checkpoint
from gpu_plan.executor.checkpoints.manifest import DCP, list_files, read_manifest, write_manifest
from gpu_plan.executor.run_folder import RunFolder, list_runs
from gpu_plan.executor.supervise.resumption import start_from_given
from gpu_plan.planner.plan.files import save
from tests.execution.checkpoint_files import replicated
from tests.execution.launches import ROOT, directly
from tests.execution.test_execute import ENVIRONMENT, PLAN
from tests.support.fault_job import SCRIPT, job, saved_plan

TINY = str(ROOT / "examples" / "tiny-llama")
SHAPE = ("--gpus", "2xcpu", "--precision", "fp32", "--micro-batch", "2", "--grad-accum", "1", "--global-batch", "4")


def test_it_is_converted_into_the_run_folder(tmp_path: Path) -> None:
    """Once for all attempts; the script is told the new place, the original stays as it is."""
    source = replicated(tmp_path / "old" / "step-2")
    asked = job(tmp_path, "--resume_from_checkpoint", "old/step-2", strategy="fsdp")
    folder = RunFolder(tmp_path / "runs" / "r")
    changed, begins = start_from_given(asked, folder)
    made = begins.path
    assert made is not None
    assert made.is_relative_to(folder.path)
    assert changed.arguments == ("--resume_from_checkpoint", str(made))
    assert begins.step == 2
    assert "saved under ddp on 2, was converted for fsdp" in begins.notes[0]
    assert open_checkpoint(made).manifest.layout == DCP
    assert start_from_given(asked, folder)[1].path == made
    assert open_checkpoint(source).manifest.layout != DCP
    same, as_it_is = start_from_given(replace(asked, saved=saved_plan()), folder)
    assert (same.arguments, as_it_is.path) == (asked.arguments, source)


def test_the_command_refuses_before_there_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = replicated(tmp_path / "step-2")
    write_manifest(source, replace(read_manifest(source), parameters=999, files=list_files(source)))
    save(saved_plan(), "plan.json")
    code = main(["--plan", "plan.json", "--execute", str(SCRIPT), "--", "--checkpoint", "step-2"])
    said = capsys.readouterr().err.splitlines()
    assert code == 4
    assert "--checkpoint step-2 cannot be resumed under this plan" in said[-1]
    assert "999 parameters, the plan is for 272" in said[-1]
    assert list_runs(tmp_path) == []


@pytest.mark.slow
def test_a_rank_refuses_what_only_the_script_knew(tmp_path: Path) -> None:
    """Before the library looks for files that are not there, in one line and with exit code 4."""
    source = replicated(tmp_path / "old" / "step-2")
    write_manifest(source, replace(read_manifest(source), layout=DCP, strategy="fsdp"))
    words = ("--steps", "4", "--model", TINY, "--resume_from_checkpoint", str(source))
    ended = directly(tmp_path, str(ROOT / "examples" / "train.py"), *words, environment={"ACCELERATE_USE_CPU": "true"})
    assert ended.code == 4
    assert "Traceback" not in ended.output
    assert f"plan: {source} was saved under fsdp on 2 ranks" in ended.output
    error = ended.ranks[0].error
    assert error is not None
    assert error.type == "gpu_plan.CheckpointMismatch"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"), [("ddp", "fsdp"), ("fsdp", "ddp"), ("zero2", "zero3")], ids=lambda name: name
)
def test_a_run_goes_on_from_it_with_the_same_losses(before: str, after: str, tmp_path: Path) -> None:
    """The losses of a run that was not stopped, whatever the strategy."""
    script = str(ROOT / "examples" / "train.py")
    words = ("--model", TINY, "--seq_length", "32", "--lr", "0.001")
    plan = (TINY, *SHAPE, "--seq-len", "32", "--checkpointing", "none", "--execute", script)
    run(tmp_path, *plan, "--strategy", before, "--", *words, "--steps", "4", "--save_steps", "2", "--keep", "9")
    reference = list_runs(tmp_path)[-1]
    source = reference.path / "checkpoints" / "step-2"
    told = ("--resume_from_checkpoint", str(source))
    said = run(tmp_path, *plan, "--strategy", after, "--", *words, "--steps", "4", *told)
    assert f"is converted for {after} on 2 before the launch" in said
    record = list_runs(tmp_path)[-1].read_run()
    assert len(record.attempts) == 1
    losses = [[step.loss for step in next(folder.ranks()).steps] for folder in (reference, list_runs(tmp_path)[-1])]
    assert losses[1] == pytest.approx(losses[0][2:], abs=2e-4)
    assert (record.attempts[0].first_step, record.attempts[0].last_step) == (3, 4)


def run(folder: Path, *words: str) -> str:
    """What the command said on stderr; it must end well."""
    ended = subprocess.run((PLAN, *words), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=1500)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stderr
