"""A folder with the files that the documents' commands name."""

import json
import shutil
from pathlib import Path

from gpu_plan.cli import main
from tests.support.documents.commands import ROOT

_SCRIPT = '''\
"""A training script that takes the words of every page."""

import argparse

import torch
from accelerate import Accelerator
from transformers import AutoConfig, AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--config")
args = parser.parse_args()
accelerator = Accelerator()
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("examples/tiny-llama"))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
data = torch.utils.data.DataLoader(torch.randint(0, 256, (64, 32)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for tokens in data:
    accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
    optimizer.step()
    optimizer.zero_grad()
'''
_AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 4
adapter: lora
lora_r: 8
optimizer: adamw_torch
bf16: true
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
"""
_CHECKS = """\
[tool.plan.checks.tiny]
model = "examples/tiny-llama"
gpus = "1xT4"
seq-len = 128
budget = ["fits"]
"""
TINY = ("examples/tiny-llama", "--gpus", "2xcpu", "--seq-len", "128", "--precision", "fp32", "--global-batch", "16")


def furnish(folder: Path) -> None:
    """Writes the files of `folder`; nothing that takes a trace."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copytree(ROOT / "examples" / "tiny-llama", folder / "my-model")
    (folder / "completions").mkdir()
    for name, text in (
        ("train.py", _SCRIPT),
        ("sft.yaml", "lr: 0.001\n"),
        ("axolotl.yml", _AXOLOTL),
        ("pyproject.toml", _CHECKS),
    ):
        (folder / name).write_text(text, encoding="utf-8")


def furnish_plans(folder: Path) -> None:
    """Writes the plans and snapshots that commands read, made by the command line in the working directory `folder`."""
    for words in (
        (*TINY, "--save", "plan.json"),
        (*TINY, "--json", "-o", "before.json"),
        (*TINY, "--micro-batch", "2", "--json", "-o", "after.json"),
        ("gpt2", "--gpus", "1xT4", "--pin", "--json", "-o", "found.json"),
        ("gpt2", "--gpus", "1xT4", "--pin", "--snapshot", "predicted.pickle"),
        ("gpt2", "--gpus", "1xT4", "--pin", "--snapshot", "recorded.pickle"),
    ):
        code = main([*words])
        if code not in (0, 1):
            raise RuntimeError(f"{words} ended with {code}")
    json.loads((folder / "plan.json").read_text())
