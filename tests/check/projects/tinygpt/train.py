"""Trains the model on random text: `python train.py --batch-size 4 --context 512`."""

import argparse
import time

import torch
from torch.utils.data import DataLoader

from gpt.config import GPTConfig
from gpt.data import Characters
from gpt.model import GPT


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1337)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = GPTConfig(context=args.context)
    model = GPT(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    loader = DataLoader(Characters(config, samples=args.steps * args.batch_size), batch_size=args.batch_size)

    model.train()
    started = time.perf_counter()
    for step, (tokens, targets) in enumerate(loader):
        tokens, targets = tokens.to(device), targets.to(device)
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            loss, logits = model(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            right = (logits.argmax(-1) == targets).float().mean()
            print(f"step {step}: loss {loss.item():.3f}, {right.item():.1%} right, {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
