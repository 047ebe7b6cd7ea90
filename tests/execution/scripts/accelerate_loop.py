"""A hand-written Accelerate loop."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from tiny import LEARNING_RATE, Tokens, add_variations, load_model, rate_at
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader


def arguments() -> argparse.Namespace:
    """As a user's script has them; the plan fills in the batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    # Read from this script's own text, as a user writes it.
    parser.add_argument("--max_grad_norm", type=float, default=1.0, help="0: gradients are not clipped")
    add_variations(parser)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps, step_scheduler_with_optimizer=False
    )
    model = load_model(args.model, args.dropout, args.random_dropout)
    loader = DataLoader(Tokens(model.config.vocab_size, args.samples), batch_size=args.batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=args.weight_decay)
    scheduler = LambdaLR(optimizer, rate_at if args.schedule else lambda step: 1.0)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    model.train()
    set_seed(7)
    step = 0
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients and args.max_grad_norm > 0:
                accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            optimizer.step()
            if accelerator.sync_gradients:
                scheduler.step()
            optimizer.zero_grad()
        step += accelerator.sync_gradients
        if step == args.steps:
            break


if __name__ == "__main__":
    main()
