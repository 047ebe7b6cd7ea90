"""Scripts that start their ranks as processes, that shard by themselves, that make an optimizer for a figure."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main
from tests.capture.test_strangers import _said

STARTED = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
def run(rank, size):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group("nccl", rank=rank, world_size=size)
    model = DistributedDataParallel(torch.nn.Linear(16, 4).cuda(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    model(torch.randn(8, 16).cuda(rank)).sum().backward()
    optimizer.step()
if __name__ == "__main__":
    context = mp.get_context("spawn")
    started = [context.Process(target=run, args=(rank, 2)) for rank in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join()
"""
FOR_A_FIGURE = """
import torch
model = torch.nn.Linear(8, 8).cuda()
def figure(optimizer):
    return sum(p.numel() for group in optimizer.param_groups for p in group["params"])
print(figure(torch.optim.Adam(model.parameters())))
model(torch.ones(4, 8).cuda()).sum().backward()
optimizer = torch.optim.Adam(model.parameters())
optimizer.step()
"""
FLAT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).cuda()
flat = torch.cat([p.detach().flatten() for p in model.parameters()])
model.flat, begin = nn.Parameter(flat), 0
for name, old in list(model.named_parameters()):
    if name != "flat":
        home, _, short = name.rpartition(".")
        part = model.flat.data[begin : begin + old.numel()].view_as(old)
        setattr(model.get_submodule(home), short, nn.Parameter(part))
        begin += old.numel()
optimizer = torch.optim.AdamW([model.flat])
(model(torch.ones(3, 4).cuda()).sum() + model.flat.sum()).backward()
optimizer.step()
"""
NOTEBOOK = """
import torch
get_ipython().system("pip install -q transformers")
get_ipython().run_line_magic("matplotlib", "inline")
model = torch.nn.Linear(3, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(5, 3).cuda()).sum().backward()
optimizer.step()
"""
REQUIRED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("out")
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("script", "parameters", "batch", "optimizer"),
    [(STARTED, 68, 8, "sgd-momentum"), (FOR_A_FIGURE, 72, 4, "adamw"), (NOTEBOOK, 12, 5, "sgd")],
    ids=["started", "for a figure", "notebook"],
)
def test_captured_as_it_trains(
    script: str, parameters: int, batch: int, optimizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    assert main([str(path), "--gpus", "2xT4", "--pin", "--json", "--no-cache"]) in (0, 1)
    document = json.loads(capsys.readouterr().out)
    workload = document["workload"]
    assert document["model"]["parameters"] == parameters
    assert (workload["script"]["micro_batch"], workload["optimizer"]) == (batch, optimizer)
    wrapper = "DistributedDataParallel" if script is STARTED else ""
    assert workload["script"].get("wrapper", "") == wrapper
    starts = script is STARTED
    assert workload["script"].get("starts_ranks", 0) == starts
    assert (document["plans"][0]["command"] == f"python {path}") is starts


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (FLAT, "its parameters are parts of flat ones that it makes itself (flat), a sharding of its own"),
        (REQUIRED, "give the script's arguments behind --: plan train.py --gpus ... -- --data ... OUT"),
        ("!pip install -q peft\nimport torch\n", "train.py:1: '!pip install -q peft' is a line of a notebook"),
        (
            "import os\nrate = float(os.environ['LR'])\n",
            "train.py:2: the environment variable LR is not set: set it before the command (LR=... plan ...)",
        ),
    ],
    ids=["flat", "required", "notebook", "environment"],
)
def test_what_cannot_be_captured_says_what_to_do(script: str, says: str, tmp_path: Path) -> None:
    assert says in _said(script, tmp_path)
