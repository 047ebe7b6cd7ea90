"""What `plan export` writes runs in another folder, from any directory, without this package."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.plan.files import save
from tests.support.bare_environment import bare_environment
from tests.support.launch_plans import saved

SCRIPT = """
import argparse, json, os
from pathlib import Path

import torch
from accelerate import Accelerator
from neighbour import LAYERS
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--out", type=Path, default=Path())
args = parser.parse_args()
accelerator = Accelerator()
torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=2)
)
rows = torch.randint(0, 64, (32, 16), generator=torch.Generator().manual_seed(1))
loader = DataLoader([{"input_ids": row, "labels": row} for row in rows], batch_size=args.batch_size)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(accelerator.reduce(loss.detach(), "mean").item())
found = {
    "losses": losses, "world": accelerator.num_processes, "kind": str(accelerator.distributed_type),
    "script": __file__, "batch": args.batch_size,
}
(args.out / f"rank-{accelerator.process_index}.json").write_text(json.dumps(found))
"""
CASES = [
    ("accelerate", "ddp"), ("accelerate", "fsdp"), ("accelerate", "fsdp1"), ("accelerate", "zero2"),
    ("torchrun", "ddp"), ("torchrun", "fsdp"), ("torchrun", "zero3"), ("deepspeed", "zero1"), ("deepspeed", "zero2"),
]  # fmt: skip
KINDS = {
    "ddp": "MULTI_CPU",
    "fsdp": "FSDP",
    "fsdp1": "FSDP",
    "zero1": "DEEPSPEED",
    "zero2": "DEEPSPEED",
    "zero3": "DEEPSPEED",
}


def exported(project, engine, strategy, monkeypatch, gpus="2xcpu", **plan):
    """A project with its export in `launch/`, written by the command itself."""
    project.mkdir(exist_ok=True)
    (project / "train.py").write_text(SCRIPT)
    (project / "neighbour.py").write_text("LAYERS = 2\n")
    save(saved(strategy, gpus, micro=2, steps=1, precision="fp32", **plan), str(project / "plan.json"), force=True)
    monkeypatch.chdir(project)
    assert main(["export", "plan.json", "--to", engine, "--force"]) == 0
    return project / "launch"


@pytest.mark.parametrize(("engine", "strategy"), CASES)
def test_the_command_finds_its_files_wherever_it_stands(engine, strategy, tmp_path, monkeypatch, capsys):
    exported(tmp_path / "project", engine, strategy, monkeypatch)
    moved = tmp_path / "an other place; $(touch ran) '"
    shutil.move(tmp_path / "project", moved)
    launch = moved / "launch"
    # A launcher that only tells how it was called.
    tools, here = tmp_path / "bin", tmp_path / "elsewhere"
    tools.mkdir()
    here.mkdir()
    (tools / engine).write_text('#!/bin/sh\nfor word; do echo "$word"; done\nenv | grep -i _CONFIG_FILE= || true\n')
    (tools / engine).chmod(0o755)
    environment = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def started(*words, **more):
        return subprocess.run(
            ["sh", str(launch / "command.sh"), *words], cwd=here, env={**environment, **more}, capture_output=True,
            text=True, timeout=1500,
        )  # fmt: skip

    done = started("--out", "x y")
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[words.index("--out") + 1] == "x y"
    script = next(word for word in words if word.endswith("train.py"))
    assert os.path.samefile(script, moved / "train.py")
    files = [word.partition("=")[2] if "CONFIG_FILE=" in word else word for word in words]
    files = [Path(word) for word in files if word.endswith((".yaml", ".json", "start_rank.py"))]
    assert all(path.parent == launch and path.is_file() for path in files)
    assert any(path.name == "deepspeed.json" for path in files) == strategy.startswith("zero")
    assert any(path.name == "start_rank.py" for path in files) == (strategy != "ddp")
    for path in launch.iterdir():
        text = path.read_text()
        assert str(tmp_path / "project") not in text, path.name
        assert "import gpu_plan" not in text, path.name
        assert "from gpu_plan" not in text, path.name
    (moved / "train.py").unlink()
    lost = started()
    assert (lost.returncode, lost.stdout) == (2, "")
    assert "SCRIPT=/path/to/script.py" in lost.stderr
    (here / "-x.py").touch()
    assert "./-x.py" in started(SCRIPT="-x.py").stdout.splitlines()
    assert not list(tmp_path.rglob("ran"))


def test_several_nodes_take_their_variables_along(tmp_path, monkeypatch, capsys):
    launch = exported(tmp_path / "project", "deepspeed", "zero2", monkeypatch, gpus="2x2xA100")
    assert "@HERE@/deepspeed.json" in (launch / "deepspeed.env").read_text()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "deepspeed").write_text('#!/bin/sh\ncat "$DS_ENV_FILE"\n')
    (tools / "deepspeed").chmod(0o755)
    moved = shutil.move(tmp_path / "project", tmp_path / "moved") / "launch"
    done = subprocess.run(
        ["sh", str(moved / "command.sh")], env={"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}, check=True,
        capture_output=True, text=True, timeout=1500,
    )  # fmt: skip
    assert f"ACCELERATE_DEEPSPEED_CONFIG_FILE={moved}/deepspeed.json" in done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return bare_environment(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def losses(bare, tmp_path_factory):
    """Of one plain process on the same global batch."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "neighbour.py").write_text("LAYERS = 2\n")
    environment = {**bare, "ACCELERATE_USE_CPU": "true"}
    words = ["python", "train.py", "--batch-size", "4"]
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True, timeout=1500)
    return json.loads((folder / "rank-0.json").read_text())["losses"]


def run(bare, engine, strategy, tmp_path, monkeypatch):
    """What each rank of a copied export says, started from a folder that is neither."""
    launch = exported(tmp_path / "project", engine, strategy, monkeypatch)
    moved = tmp_path / "another machine"
    shutil.copytree(launch.parent, moved)
    shutil.rmtree(launch.parent)
    here = tmp_path / "here"
    here.mkdir()
    done = subprocess.run(
        ["sh", str(moved / "launch" / "command.sh"), "--out", str(here)], cwd=here, env=bare, capture_output=True,
        text=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(path.read_text()) for path in sorted(here.glob("rank-*.json"))]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "strategy"), CASES)
def test_it_runs_without_this_package(bare, losses, engine, strategy, tmp_path, monkeypatch, capsys):
    ranks = run(bare, engine, strategy, tmp_path, monkeypatch)
    assert [rank["world"] for rank in ranks] == [2, 2]
    assert {rank["batch"] for rank in ranks} == {2}
    assert all(KINDS[strategy] in rank["kind"] for rank in ranks)
    assert len(losses) == 8
    assert ranks[0]["losses"] == pytest.approx(losses, rel=1e-3)
