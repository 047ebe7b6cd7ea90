"""Fine-tunes the model: `accelerate launch scripts/train.py --config scripts/sft.yaml`."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import bitsandbytes
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import get_cosine_schedule_with_warmup

from finetune.data import Conversations
from finetune.modeling import build_model
from finetune.objective import answer_loss
from finetune.settings import read_settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    settings = read_settings(parser.parse_args().config)
    set_seed(settings.seed)
    accelerator = Accelerator(mixed_precision="bf16")
    model = build_model(ROOT / "model")
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=settings.learning_rate)
    schedule = get_cosine_schedule_with_warmup(optimizer, settings.warmup, settings.steps)
    data = Conversations(settings.sequence_length, settings.steps * settings.batch_size, model.config.vocab_size)
    loader = DataLoader(data, batch_size=settings.batch_size, shuffle=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

    model.train()
    for step, batch in enumerate(loader):
        outputs = model(input_ids=batch["input_ids"])
        loss = answer_loss(outputs.logits, batch["labels"])
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            accelerator.print(f"step {step}: loss {loss.item():.3f}")
    with torch.no_grad():
        accelerator.print("done")


if __name__ == "__main__":
    main()
