"""Trains a causal language model with a hand-written Accelerate loop."""

import argparse
import json
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import AutoConfig, AutoModelForCausalLM, get_scheduler


class Tokens(Dataset):
    def __init__(self, count, length, vocabulary):
        generator = torch.Generator().manual_seed(7)
        self.rows = torch.randint(0, vocabulary, (count, length), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return {"input_ids": row, "labels": row.clone()}


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="examples/tiny-llama")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--gradient-accumulation-steps", type=int, default=2)
    parser.add_argument("--max-steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="out")
    return parser.parse_args()


def evaluate(model, loader, accelerator):
    model.eval()
    losses = []
    for batch in loader:
        with torch.no_grad():
            outputs = model(**batch)
        losses.append(accelerator.gather_for_metrics(outputs.loss.repeat(len(batch["input_ids"]))))
    model.train()
    return torch.cat(losses).mean().item()


def main():
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)
    config = AutoConfig.from_pretrained(args.config)
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train_loader = DataLoader(Tokens(512, 64, config.vocab_size), batch_size=args.batch_size, shuffle=True)
    eval_loader = DataLoader(Tokens(50, 64, config.vocab_size), batch_size=args.batch_size)
    scheduler = get_scheduler(
        "cosine",
        optimizer=optimizer,
        num_warmup_steps=10,
        num_training_steps=args.max_steps * accelerator.num_processes,
    )
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    steps = 0
    best = float("inf")
    for epoch in range(args.epochs):
        for batch in train_loader:
            with accelerator.accumulate(model):
                outputs = model(**batch)
                loss = outputs.loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                steps += 1
                accelerator.print(f"step {steps} loss {loss.item():.4f}")
                if steps % args.save_every == 0:
                    accelerator.save_state(os.path.join(args.output, f"step-{steps}"))
            if steps >= args.max_steps:
                break
        value = evaluate(model, eval_loader, accelerator)
        accelerator.print(f"epoch {epoch} evaluation {value:.4f}")
        if value < best:
            best = value
            accelerator.save_state(os.path.join(args.output, "best"))
    accelerator.wait_for_everyone()
    state = accelerator.get_state_dict(model)
    unwrapped = accelerator.unwrap_model(model)
    if accelerator.is_main_process:
        unwrapped.save_pretrained(args.output, state_dict=state)
        with open(os.path.join(args.output, "result.json"), "w") as file:
            json.dump({"evaluation": value}, file)
    accelerator.end_training()


if __name__ == "__main__":
    main()
