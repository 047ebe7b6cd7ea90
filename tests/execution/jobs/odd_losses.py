"""A linear model whose loss becomes what it is told: NaN from a step on, infinite once, or an fp16 overflow."""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from gpu_plan import current_plan

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=["nan", "inf", "overflow"])
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args()
accelerator = Accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=args.batch_size))
scaler = torch.amp.GradScaler("cpu", init_scale=1.0, enabled=args.kind == "overflow")
for step, batch in enumerate(loader, start=1):
    loss = model(batch).pow(2).mean()
    if args.kind == "nan" and step >= 3:
        loss = loss * float("nan")
    if args.kind == "inf" and step == 3:
        loss = loss + float("inf")  # its gradient is that of the finite loss
    if args.kind == "overflow" and step == 3:
        loss = loss * float("inf")  # gradients overflow: the scaler leaves the step out
    scaler.scale(loss).backward()
    scaler.step(getattr(optimizer, "optimizer", optimizer))
    scaler.update()
    optimizer.zero_grad()
    if step == 5:
        break
    if step == 2:
        accelerator.save_state(str((current_plan().run_folder or Path()) / "checkpoints" / f"step-{step}"))
