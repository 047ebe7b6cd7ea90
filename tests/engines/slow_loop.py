"""A training that takes its time: numbered samples, a checkpoint every other step, and exact where it is resumed."""

import argparse
import time

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

from gpu_plan import current_plan

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--pause", type=float, default=0.0, help="seconds of sleep in every step")
args = parser.parse_args()
plan = current_plan()
set_seed(0)
accelerator = Accelerator()
model = torch.nn.Sequential(torch.nn.Linear(16, 16))
samples = torch.arange(4096 * 16, dtype=torch.float32).reshape(4096, 16) / 65536
loader = DataLoader(samples, batch_size=plan.micro_batch_size or 4)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
step = 0
if plan.resume_from:
    accelerator.load_state(str(plan.resume_from))
    step = int(plan.resume_from.name.removeprefix("step-"))
for batch in skip_first_batches(loader, step):
    loss = model(batch).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    time.sleep(args.pause)
    if step % 2 == 0 and plan.run_folder is not None:
        accelerator.save_state(str(plan.run_folder / "checkpoints" / f"step-{step}"))
    if step == args.steps:
        break
accelerator.end_training()
