"""Converters of layouts, on files as accelerate writes them; whether a job goes on from them: test_resume_across."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpu_plan.cli import main
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


@pytest.mark.slow
def test_the_command_makes_one_and_prints_where(
    replicated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(replicated), "--to", "hsdp", "--ranks", "4"]) == 0
    said = capsys.readouterr()
    made = tmp_path / "step-2-as-hsdp-4"
    assert said.out == f"{made}\n"
    assert "step 2, saved under ddp on 2, for hsdp on 4" in said.err
    assert open_checkpoint(made).manifest.converted_from == str(replicated)
    assert main(["convert", str(made), "--to", "single", "-o", str(tmp_path / "back")]) == 0
    assert differing(replicated, tmp_path / "back") == []
    capsys.readouterr()
    assert main(["convert", str(replicated), "--to", "ddp", "--ranks", "8"]) == 0
    assert capsys.readouterr().out == f"{replicated}\n", "it is read as it stands"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("step-2", "--to", "zero3"), 2, "cannot be converted for zero3 on 2 ranks: no converter"),
        (("step-2", "--to", "zerro3"), 2, "--to 'zerro3' is not a strategy: use single, ddp"),
        (("step-2", "--to", "fsdp", "--ranks", "none"), 2, "--ranks 'none' is not a number of 1 or more"),
        (("step-2", "--to", "single", "--ranks", "2"), 2, "--ranks 2: single runs on one"),
        (("step-2", "--to", "fsdp", "-o", "step-2"), 2, "step-2 is there already"),
        (("nothing", "--to", "fsdp"), 3, "nothing is not a folder"),
        ((".", "--to", "fsdp"), 2, ". is not a complete checkpoint: it has no plan-checkpoint.json"),
    ],
)
def test_the_command_refuses_in_one_line_and_writes_nothing(
    words: tuple[str, ...],
    code: int,
    says: str,
    replicated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["convert", *words]) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert says in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]
