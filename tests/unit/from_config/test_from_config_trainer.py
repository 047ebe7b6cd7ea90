"""Options of TrainingArguments that change what a step holds: reentrant checkpoints, a smoothed loss."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main

COMMON = {"model_name_or_path": "meta-llama/Llama-3.2-1B", "per_device_train_batch_size": 4, "output_dir": "out"}


def written(folder: Path, capsys: pytest.CaptureFixture[str], **options: object) -> str:
    """The command that a file becomes."""
    path = folder / "arguments.json"
    path.write_text(json.dumps({**COMMON, **options}))
    assert main(["from-config", str(path), "--gpus", "1xH100"]) == 0
    return capsys.readouterr().out


def test_reentrant_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kwargs = {"gradient_checkpointing_kwargs": {"use_reentrant": True}}
    asked = "--set checkpoint.reentrant=true"
    assert asked in written(tmp_path, capsys, gradient_checkpointing=True, **kwargs)
    assert asked not in written(tmp_path, capsys, gradient_checkpointing=False, **kwargs)
    other = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}
    assert asked not in written(tmp_path, capsys, gradient_checkpointing=True, **other)


def test_a_smoothed_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "--set loss.variant=trainer-smoothed"
    assert asked in written(tmp_path, capsys, label_smoothing_factor=0.1)
    assert asked not in written(tmp_path, capsys, label_smoothing_factor=0)
