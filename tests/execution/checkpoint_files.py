"""A small checkpoint as accelerate's own code writes it, made without launching anything."""

import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from gpu_plan.executor.checkpoints.manifest import REPLICATED, Manifest, list_files, write_manifest


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer, tuple[str, ...]]:
    """A model after two steps, its optimizer of two groups, and names in the optimizer's order: not the model's."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2, bias=False))
    decayed = [name for name, each in model.named_parameters() if each.ndim == 2]
    others = [name for name, each in model.named_parameters() if each.ndim == 1]
    named = dict(model.named_parameters())
    groups = [
        {"params": [named[name] for name in decayed], "weight_decay": 0.1},
        {"params": [named[name] for name in others], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    for _ in range(2):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer, (*decayed, *others)


def replicated(folder: Path) -> Path:
    """As accelerate's save_accelerator_state writes it under DDP on two ranks."""
    model, optimizer, names = trained()
    folder.mkdir(parents=True)
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    torch.save(optimizer.state_dict(), folder / "optimizer.bin")
    torch.save({"last_epoch": 2}, folder / "scheduler.bin")
    manifest = Manifest(
        step=2,
        samples=6,
        stack="accelerate",
        layout=REPLICATED,
        strategy="ddp",
        world_size=2,
        created=time.time(),
        parameter_names=names,
        files=list_files(folder),
    )
    write_manifest(folder, manifest)
    return folder
