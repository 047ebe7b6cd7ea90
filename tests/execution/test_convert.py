"""Converters of layouts, on files as accelerate writes them; whether a job goes on from them: test_resume_across."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpu_plan.executor.checkpoints.convert.__main__ import convert
from gpu_plan.executor.checkpoints.convert.torch_layouts import by_name, by_number
from gpu_plan.executor.checkpoints.find import open_checkpoint
from gpu_plan.executor.checkpoints.manifest import (
    DCP,
    REPLICATED,
    list_files,
    read_manifest,
    write_manifest,
)
from gpu_plan.planner.errors import InputError
from tests.execution.checkpoint_content import differing, tensors
from tests.execution.checkpoint_files import replicated, trained


@pytest.fixture(name="replicated")
def saved(tmp_path: Path) -> Path:
    return replicated(tmp_path / "step-2")


def test_there_and_back_is_the_same_bit_for_bit(replicated: Path, tmp_path: Path) -> None:
    sharded, back = tmp_path / "sharded", tmp_path / "back"
    convert(replicated, sharded, layout=DCP, strategy="fsdp", world_size=4)
    made = open_checkpoint(sharded).manifest
    assert (made.layout, made.strategy, made.world_size) == (DCP, "fsdp", 4)
    assert (made.step, made.samples, made.random_states) == (2, 6, False)
    assert made.converted_from == str(replicated)
    names = tensors(sharded)
    assert "pytorch_model_fsdp_0/model/0.weight" in names
    assert "optimizer_0/optimizer/state/1.bias/exp_avg_sq" in names
    convert(sharded, back, layout=REPLICATED, strategy="ddp", world_size=2)
    assert differing(replicated, back) == []
    optimizer = trained()[1]
    optimizer.load_state_dict(torch.load(back / "optimizer.bin", weights_only=True))
    assert optimizer.param_groups[0]["weight_decay"] == 0.1


def test_names_take_the_place_of_numbers() -> None:
    _, optimizer, names = trained()
    state = optimizer.state_dict()
    named = by_name(state, names)
    assert [name for group in named["param_groups"] for name in group["params"]] == list(names)
    assert by_number(named) == state
    with pytest.raises(InputError, match="5 parameters, 4 names"):
        by_name(state, names[:-1])


def test_a_checkpoint_that_is_torn_is_not_converted(replicated: Path, tmp_path: Path) -> None:
    (replicated / "optimizer.bin").write_bytes(b"")
    command = [sys.executable, "-m", "gpu_plan.executor.checkpoints.convert", str(replicated), str(tmp_path / "new")]
    ended = subprocess.run(
        [*command, "--layout", DCP, "--strategy", "fsdp", "--world-size", "2"], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert "optimizer.bin has 0 bytes" in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2"]


def test_what_torch_cannot_read_ends_in_one_line_and_leaves_nothing(replicated: Path, tmp_path: Path) -> None:
    (replicated / "optimizer.bin").write_bytes(b"no pickle")
    manifest = read_manifest(replicated)
    write_manifest(replicated, replace(manifest, files=list_files(replicated)))
    command = [sys.executable, "-m", "gpu_plan.executor.checkpoints.convert", str(replicated), str(tmp_path / "new")]
    ended = subprocess.run(
        [*command, "--layout", DCP, "--strategy", "fsdp", "--world-size", "2"], capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2"]
