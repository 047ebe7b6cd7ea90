"""A hand-written Accelerate loop, as a user writes it."""

import argparse

import torch
from accelerate import Accelerator
from tiny import Tokens, tiny_llama, write_truth
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--tracker")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--evaluate", action="store_true")
arguments = parser.parse_args()

accelerator = Accelerator(log_with=arguments.tracker, project_dir=".")
if arguments.tracker:
    accelerator.init_trackers("job")
model = tiny_llama(arguments.layers)
parameters = sum(p.numel() for p in model.parameters())
if arguments.checkpointing:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
if arguments.compile:
    model = torch.compile(model, backend="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Tokens(256), batch_size=arguments.batch)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

losses, sizes, step = [], [], 0
parts = []
batches = iter(loader)
while step < arguments.steps:
    batch = next(batches)
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        parts.append(float(loss.detach()))
        sizes.append(list(batch["input_ids"].shape))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        step += 1
        losses.append(sum(parts) / len(parts))
        parts = []
        if arguments.tracker:
            accelerator.log({"train_loss": losses[-1]}, step=step * 10)
        if arguments.evaluate:
            model.eval()
            with torch.no_grad():
                model(**batch)
            model.train()
write_truth(losses=losses, sizes=sizes, parameters=parameters)
accelerator.end_training()
