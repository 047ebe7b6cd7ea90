"""A hand-written Accelerate loop."""

import torch
from accelerate import Accelerator
from tiny import CLIP, LEARNING_RATE, Tokens, arguments, make_model
from torch.utils.data import DataLoader


def main() -> None:
    args = arguments()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    model = make_model()
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
