"""Loops beside a language model's: pictures, waves, several devices of Lightning, odd optimizers and types."""

import json
from pathlib import Path

import pytest
import torch

from gpu_plan.cli import main
from gpu_plan.planner.capture.answers.devices.cuda import cuda_answers
from gpu_plan.planner.capture.request import PlannedDevice
from gpu_plan.planner.errors import InputError

CNN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.drop, self.head = nn.Conv2d(8, 16, 3, stride=2), nn.Dropout2d(0.25), nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv1(x)))
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return nn.functional.log_softmax(self.head(torch.flatten(self.drop(x), 1)), dim=1)

device = "cuda" if torch.cuda.is_available() else "cpu"
pictures = TensorDataset(torch.rand(64, 3, 32, 32), torch.randint(0, 10, (64,)))
net = Net().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for x, y in DataLoader(pictures, batch_size=16, shuffle=True):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    out = net(x)
    nn.functional.nll_loss(out, y).backward()
    optimizer.step()
    print((out.argmax(1) == y).float().mean().item())
"""
WAVES = """
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

config = Wav2Vec2Config(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=32,
    conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, ctc_loss_reduction="mean",
)
model = Wav2Vec2ForCTC(config).cuda().train()
model.freeze_feature_encoder()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
loss = model(input_values=torch.randn(2, 16000).cuda(), labels=torch.randint(1, 32, (2, 12)).cuda()).loss
loss.backward()
optimizer.step()
"""
LIGHTNING = """
import torch, lightning as L
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

data = TensorDataset(torch.randn(128, 64), torch.randint(0, 10, (128,)))
trainer = L.Trainer(
    accelerator="gpu", devices=2, precision="bf16-mixed", strategy="ddp", max_epochs=1, accumulate_grad_batches=2,
    gradient_clip_val=1.0,
)
trainer.fit(Lit(), DataLoader(data, batch_size=16, num_workers=2))
"""
PLAIN = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1)).cuda()
optimizer = torch.optim.{optimizer}
x, y = torch.randn(16, 10).cuda(), torch.randn(16, 1).cuda()

def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss

optimizer.step(closure)
"""
HALF = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)).cuda().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
out = model(torch.randn(16, 64, device="cuda").half())
nn.functional.cross_entropy(out.float(), torch.randint(0, 8, (16,), device="cuda")).backward()
optimizer.step()
"""
CAPTURED = {
    "cnn": (CNN, "1xA100", {"micro_batch": 16, "optimizer": "sgd-momentum", "precision": "fp32"}),
    "waves": (WAVES, "1xA100", {"micro_batch": 2, "optimizer": "adamw", "precision": "fp32"}),
    "lightning": (LIGHTNING, "2xA100", {"micro_batch": 16, "grad_accum": 2, "precision": "bf16-mixed"}),
}
REFUSED = {
    "half": (HALF, "its trained weights are in float16"),
    "lbfgs": (PLAIN.format(optimizer="LBFGS(model.parameters())"), "torch.optim.lbfgs.LBFGS"),
    "rprop": (PLAIN.format(optimizer="Rprop(model.parameters())"), "torch.optim.rprop.Rprop"),
}


def test_a_gpu_that_a_script_takes_on_planned_cpus_is_named() -> None:
    cpus = PlannedDevice(name="CPU", total_bytes=2**34, capability_major=None)
    with cuda_answers(cpus, 1), pytest.raises(InputError, match=r"takes a GPU for itself \(torch.cuda.set_device\(0\)"):
        torch.cuda.set_device(0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURED)
def test_a_loop_is_captured(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, gpus, expected = CAPTURED[name]
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    assert main(["train.py", "--gpus", gpus, "--pin", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {key: document["workload"][key] for key in expected} == expected
    if gpus.startswith("2"):
        assert {plan["strategy"]["name"] for plan in document["plans"]} == {"ddp"}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_plan_is_made_of_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, line = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    assert main(["train.py", "--gpus", "1xA100", "--pin"]) == 2
    assert line in capsys.readouterr().err.splitlines()[-1]
