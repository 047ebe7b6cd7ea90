"""What scripts of strangers do beside training: ask where a tensor lies, draw on the device, import relatively."""

import json
from pathlib import Path

import pytest

from gpu_plan.cli import main
from gpu_plan.planner.capture.parent import CaptureError, capture
from gpu_plan.planner.capture.request import CaptureRequest
from tests.capture.test_what_people_write import T4

ASKS = """
import torch
layer = torch.nn.Linear(4, 4)
before = layer.weight.is_meta, layer.weight.device.type
layer.cuda()
x = torch.randn(2, 4, device=layer.weight.device)
with torch.autocast(x.device.type, dtype=torch.float16):
    kind = layer(x).dtype
same = x.device == layer.weight.device
raise SystemExit(repr((before, str(x.device), x.is_cuda, x.is_cpu, x.get_device(), same, kind)))
"""
TIED = """
import torch
from torch import nn
model = nn.ModuleDict({"table": nn.Embedding(8, 4), "head": nn.Linear(4, 8, bias=False)})
model["table"].weight = model["head"].weight
raise SystemExit(str(sum(p.numel() for p in model.parameters())))
"""
DRAWN = """
import torch
torch.set_default_device("cuda")
rows = torch.arange(1000, device="cpu")
model = torch.nn.Sequential(torch.nn.Embedding(1000, 8), torch.nn.Linear(8, 1000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
starts = torch.randint(1000 - 16, (4,))
x = torch.stack([rows[i : i + 16] for i in starts]).to("cuda")
torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
optimizer.step()
"""
COMPARED = """
import torch
first = torch.nn.Linear(4, 1)
first(torch.ones(3, 4)).sum().backward()
print(first.weight.grad.sum())
model = torch.nn.Linear(6, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(5, 6).cuda()).sum().backward()
    optimizer.step()
"""
CATCHES = """
import torch
def main():
    raise KeyError("no such column")
try:
    main()
except Exception as problem:
    print(f"failed: {problem}")
"""
BUCKETS = """
import torch
from torch.utils.data import DataLoader, Sampler
rows = [torch.arange(4 + n % 60) for n in range(120)]
class Buckets(Sampler):
    def __iter__(self):
        order = sorted(range(120), key=lambda n: len(rows[n]))
        yield from (order[at : at + 4] for at in range(0, 120, 4))
def collate(chosen):
    return {"input_ids": torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True)}
model = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Linear(8, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(rows, batch_sampler=Buckets(), collate_fn=collate):
    x = batch["input_ids"].cuda()
    torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
    optimizer.step()
"""
TUPLES = """
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
rows = [torch.arange(1 + n % 40) for n in range(64)]
def collate(chosen):
    return pad_sequence(chosen), torch.tensor([len(row) for row in chosen])
model = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Linear(8, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, lengths in DataLoader(rows, batch_size=4, shuffle=True, collate_fn=collate):
    x = x.cuda()
    torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
    optimizer.step()
"""
OF_A_PACKAGE = """
from .parts import made
import torch
model = made().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4, device="cuda")).sum().backward()
optimizer.step()
"""
JOINED_ELSEWHERE = """
import torch
from ours import join
model = torch.nn.Linear(4, 4).cuda()
model = join(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4, device="cuda")).sum().backward()
optimizer.step()
"""
JOINS = """
import os, torch
def join(model):
    if "RANK" not in os.environ:
        return model
    torch.distributed.init_process_group("nccl")
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])
"""
UNKNOWN_TOKENS = """
import torch
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("nobody/tokens-of-their-own")
model = torch.nn.Sequential(torch.nn.Embedding(40_000, 8), torch.nn.Linear(8, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(tokenizer(["a line of words"], return_tensors="pt")["input_ids"].cuda()).sum().backward()
optimizer.step()
"""


def _said(script: str, tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(script)
    request = CaptureRequest(script=str(tmp_path / "train.py"), working_directory=str(tmp_path), device=T4)
    with pytest.raises(CaptureError) as refused:
        capture(request)
    return str(refused.value)


def _document(script: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert main([str(script), "--gpus", "1xT4", "--pin", "--json", "--no-cache", *options]) in (0, 1)
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_users_own_code_is_told_of_the_planned_gpu(tmp_path: Path) -> None:
    wanted = "((False, 'cpu'), 'cuda:0', True, False, 0, True, torch.float16)"
    assert wanted in _said(ASKS, tmp_path)


def test_a_missing_package_of_kernels_says_what_is_planned_in_its_place(tmp_path: Path) -> None:
    said = _said("from flash_attn import flash_attn_func\n", tmp_path)
    assert "flash_attn is of GPUs: guard its import" in said


def test_tied_weights_stay_one(tmp_path: Path) -> None:
    assert "step: 32;" in _said(TIED, tmp_path)


def test_an_exception_that_the_script_catches_is_named(tmp_path: Path) -> None:
    said = _said(CATCHES, tmp_path)
    assert "the last exception that it caught itself was KeyError: 'no such column' at train.py:4" in said


@pytest.mark.parametrize(
    ("script", "batch", "length", "parameters"),
    [(DRAWN, 4, 16, 17_000), (COMPARED, 5, None, 7), (BUCKETS, 4, 63, 1088)],
    ids=["drawn on the device", "compared first", "buckets"],
)
def test_captured_as_it_trains(
    script: str, batch: int, length: int | None, parameters: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    document = _document(path, capsys)
    told = document["workload"]["script"]  # type: ignore[index]
    assert document["model"]["parameters"] == parameters  # type: ignore[index]
    assert (told["micro_batch"], told.get("seq_len")) == (batch, length)


def test_samples_of_no_name_are_looked_at_for_their_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(TUPLES)
    told = [line["text"] for line in _document(path, capsys)["assumptions"]]  # type: ignore[attr-defined]
    assert any("[40, 4] int64" in line and "the longest of 64 samples, 40 tokens" in line for line in told)


def test_a_module_of_a_package_runs_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "ours"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("import torch\ndef made():\n    return torch.nn.Linear(4, 3)\n")
    (package / "train.py").write_text(OF_A_PACKAGE)
    assert _document(package / "train.py", capsys)["model"]["parameters"] == 15  # type: ignore[index]


def test_a_tokenizer_without_a_model_is_stood_in_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(UNKNOWN_TOKENS)
    document = _document(path, capsys, "--data", "standin")
    assert any("for no config says its size" in line["text"] for line in document["assumptions"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("gpus", "wrapper"), [("2xT4", "DistributedDataParallel"), ("1xT4", "")])
def test_a_module_of_the_project_may_join_the_ranks(
    gpus: str, wrapper: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ours.py").write_text(JOINS)
    (tmp_path / "train.py").write_text(JOINED_ELSEWHERE)
    assert main([str(tmp_path / "train.py"), "--gpus", gpus, "--pin", "--json", "--no-cache"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)["workload"]["script"]
    assert told.get("wrapper", "") == wrapper
