"""Blocks around what people really write their loops with."""

import tempfile

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.plugin.blocks import Net
from tests.plugin.test_block_figures import captured

WEIGHTS = sum(-(-parameter.numel() * 4 // 512) * 512 for parameter in Net().parameters())


def accelerate_loop():
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16")
    model = Net()
    loader = DataLoader([torch.ones(192, device="cpu") for _ in range(8)], batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for given in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(given).float().pow(2).mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def scaled_half_precision():
    model = Net().cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(8, 192, device="cuda")).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def fused_and_compiled():
    model = torch.compile(Net())
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(2):
        loss = model(torch.randn(8, 192)).sum()
        print(f"step {step}: {loss:.3f}")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def lightning_loop():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, index):
            return self.net(batch[0]).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    loader = DataLoader(TensorDataset(torch.randn(16, 192, device="cpu")), batch_size=8)
    with tempfile.TemporaryDirectory() as folder:
        options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        lightning.Trainer(max_steps=2, default_root_dir=folder, **options).fit(Module(), loader)


@pytest.mark.slow
@pytest.mark.parametrize("body", [accelerate_loop, scaled_half_precision, fused_and_compiled, lightning_loop],
                         ids=lambda body: body.__name__)  # fmt: skip
def test_adamw_keeps_two_moments_whoever_runs_the_loop(body):
    memory = captured(body)
    assert memory.facts.steps == 2
    steps_on_the_device = len(list(Net().parameters())) * 512 if body is fused_and_compiled else 0
    assert memory.at_peak["parameters"] == WEIGHTS
    assert memory.at_peak["optimizer_state"] == 2 * WEIGHTS + steps_on_the_device


@pytest.mark.slow
def test_the_trainer_of_transformers_runs_inside_a_block():
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}

    def body():
        model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=100))
        data = [{"input_ids": [1] * 16, "labels": [1] * 16} for _ in range(8)]
        with tempfile.TemporaryDirectory() as folder:
            options = {"max_steps": 2, "per_device_train_batch_size": 2, "report_to": [], "save_strategy": "no"}
            Trainer(
                model=model, args=TrainingArguments(output_dir=folder, bf16=True, **options), train_dataset=data
            ).train()

    memory = captured(body)
    assert memory.facts.models == ("LlamaForCausalLM",)
    assert memory.facts.steps == 2
    weights = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=100)).num_parameters() * 4
    assert weights <= memory.at_peak["parameters"] <= weights * 1.02
    assert 2 * weights <= memory.at_peak["optimizer_state"] <= 2.1 * weights


def test_eight_bit_state_takes_a_byte_for_each_of_both_moments():
    bitsandbytes = pytest.importorskip("bitsandbytes")

    def body():
        model = nn.Sequential(nn.Linear(256, 256, bias=False))
        optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
        for _ in range(2):
            model(torch.randn(8, 256)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    state = captured(body).at_peak["optimizer_state"]
    assert 2 * 256 * 256 <= state < 2 * 256 * 256 * 1.1


def test_a_number_is_formatted_as_it_is_read(capsys):
    def body():
        loss = Net()(torch.randn(8, 192)).mean()
        print(f"{loss:.3f} {float(loss)} {loss.item()}")
        loss.backward()

    captured(body)
    assert capsys.readouterr().out == "1.000 1.0 1.0\n"
