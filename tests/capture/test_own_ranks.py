"""Scripts that ask for their ranks in Accelerate's own words, ask parameters what they are, or pack sequences."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.cli import main

DEGREES = """
import sys, torch
from accelerate import Accelerator
from accelerate.parallelism_config import ParallelismConfig
shard, replicate, tensor = map(int, sys.argv[1:])
config = ParallelismConfig(dp_shard_size=shard, dp_replicate_size=replicate, tp_size=tensor)
accelerator = Accelerator(mixed_precision="bf16", parallelism_config=config)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
accelerator.backward(model(torch.ones(4, 8, device=accelerator.device)).sum())
optimizer.step()
"""
DTENSORS = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
dist.init_process_group("nccl")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
assert all(isinstance(one, DTensor) for one in model.parameters())
assert not isinstance(torch.ones(2), DTensor)
print(model[0].weight.to_local().shape, model[0].weight.full_tensor().shape, model[0].weight.device_mesh)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(4, 8, device="cuda")).sum().backward()
optimizer.step()
"""
SENT = """
import torch
# accelerate/utils/random.py, synchronize_rng_state: the state goes over the device and back, without its values here
generator = torch.Generator().manual_seed(3)
before = generator.get_state()
generator.set_state(before.to("cuda").cpu())
assert torch.equal(generator.get_state(), before)
generator.set_state(torch.Generator().manual_seed(4).get_state())
assert not torch.equal(generator.get_state(), before)
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(4, 8, device="cuda")).sum().backward()
optimizer.step()
"""
PACKED = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
rows = [torch.randint(1, 50, (length,)) for length in (9, 7, 5, 3) for _ in range(4)]
def collate(batch):
    batch = sorted(batch, key=len, reverse=True)
    return pad_sequence(batch), torch.tensor([len(row) for row in batch])
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(50, 8), nn.GRU(8, 16), nn.Linear(16, 50)
    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.table(x), lengths.to("cpu"))
        return self.head(pad_packed_sequence(self.rnn(packed)[0])[0])
model = Model().cuda()
optimizer = torch.optim.Adam(model.parameters())
for x, lengths in torch.utils.data.DataLoader(rows, batch_size=16, collate_fn=collate):
    model(x.cuda(), lengths).sum().backward()
    optimizer.step()
"""
TEXT = """
import urllib.request, torch
urllib.request.urlretrieve("https://example.org/plays.txt", "plays.txt")
letters = open("plays.txt").read()[:64]
ids = torch.tensor([ord(one) % 32 for one in letters]).view(4, 16)
model = torch.nn.Sequential(torch.nn.Embedding(32, 8), torch.nn.Linear(8, 32)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(ids.cuda()).sum().backward()
optimizer.step()
"""
TOGGLED = """
import torch, pytorch_lightning as pl
from torch import nn
class Two(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)
    def training_step(self, batch, index):
        for optimizer in self.optimizers():
            self.toggle_optimizer(optimizer)
            self.manual_backward(self.second(self.first(batch)).sum())
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)
    def configure_optimizers(self):
        return [torch.optim.Adam(self.first.parameters()), torch.optim.Adam(self.second.parameters())]
    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)
pl.Trainer(max_epochs=1, logger=False, enable_checkpointing=False).fit(Two())
"""


def planned(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str], *words: str, gpus: str = "1xA100-80GB"
) -> Any:
    script = tmp_path / "train.py"
    script.write_text(text)
    code = main([str(script), "--gpus", gpus, "--pin", "--json", "--no-cache", *words])
    out, said = capsys.readouterr()
    return (json.loads(out), said) if code in (0, 1) else (code, said.strip().splitlines()[-1])


def test_degrees_are_the_strategy_of_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, _ = planned(tmp_path, DEGREES, capsys, "--", "2", "2", "1", gpus="4xA100-80GB")
    found = document["plans"][0]["strategy"]
    assert (found["name"], found["offload"]) == ("hsdp", "none"), found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("degrees", "gpus", "said"),
    [
        (("4", "1", "1"), "1xA100-80GB", "is of 4 processes (dp_replicate_size=1, dp_shard_size=4), and 1 is planned"),
        (("1", "1", "2"), "2xA100-80GB", "asks for tp_size=2, of which a capture makes no plan"),
    ],
)
def test_degrees_of_which_no_plan_is_made_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], degrees: tuple[str, ...], gpus: str, said: str
) -> None:
    code, line = planned(tmp_path, DEGREES, capsys, "--", *degrees, gpus=gpus)
    assert code == 2
    assert said in line


@pytest.mark.slow
def test_sharded_parameters_are_dtensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, _ = planned(tmp_path, DTENSORS, capsys, gpus="2xA100-80GB")
    assert document["plans"][0]["strategy"]["name"] == "fsdp"


def test_a_generators_state_that_was_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """diffusers' scripts over shuffled data on several GPUs ended in "RNG state must be a torch.ByteTensor"."""
    document, _ = planned(tmp_path, SENT, capsys)
    assert document["plans"]


def test_packed_sequences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, _ = planned(tmp_path, PACKED, capsys)
    assert document["workload"]["micro_batch"] == 16
    assert document["workload"]["script"]["seq_len"] == 9


@pytest.mark.slow
def test_a_text_that_is_downloaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = planned(tmp_path, TEXT, capsys)
    assert code == 2
    assert "the text https://example.org/plays.txt is not at hand: --data standin" in line
    document, _ = planned(tmp_path, TEXT, capsys, "--data", "standin")
    assert any("plays.txt is a stand-in" in one["text"] for one in document["assumptions"])


@pytest.mark.slow
def test_optimizers_that_lightning_toggles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, _ = planned(tmp_path, TOGGLED, capsys)
    assert document["model"]["trainable_parameters"] == document["model"]["parameters"] == 25
