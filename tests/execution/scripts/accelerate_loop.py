"""A hand-written Accelerate loop."""

import argparse

import torch
from accelerate import Accelerator
from tiny import CLIP, LEARNING_RATE, Tokens, load_model
from torch.utils.data import DataLoader


def arguments() -> argparse.Namespace:
    """As a user's script has them; the plan fills in the batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    model = load_model(args.model)
    loader = DataLoader(Tokens(model.config.vocab_size), batch_size=args.batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    step = 0
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
        step += accelerator.sync_gradients
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
