"""A loop in plain torch, as for torchrun: it joins the ranks and wraps the model itself, as the plan says."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from tiny import LEARNING_RATE, Tokens, add_variations, load_model, rate_at
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, DistributedSampler

from gpu_plan import current_plan


def arguments() -> argparse.Namespace:
    """As a user's script has them; the plan fills in the batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--max_grad_norm", type=float, default=1.0, help="0: gradients are not clipped")
    add_variations(parser)
    return parser.parse_args()


def wrap(model: torch.nn.Module, strategy: str | None) -> torch.nn.Module:
    """One GPU or several; DDP unless the plan says otherwise."""
    if not dist.is_initialized() or strategy in ("tp", "fsdp_tp", "fsdp_ep", "hsdp_ep"):
        return model
    if strategy == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return DistributedDataParallel(model)


def without_sync(model: torch.nn.Module, last: bool) -> contextlib.AbstractContextManager:
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)
    return contextlib.nullcontext()


def main() -> None:
    args = arguments()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    model = load_model(args.model, args.dropout, args.random_dropout)
    data = Tokens(model.config.vocab_size, args.samples)
    sampler = DistributedSampler(data, shuffle=False) if dist.is_initialized() else None
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = wrap(model.train(), current_plan().strategy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=args.weight_decay)
    scheduler = LambdaLR(optimizer, rate_at if args.schedule else lambda step: 1.0)
    torch.manual_seed(7)
    steps = args.gradient_accumulation_steps
    for number, batch in enumerate(loader, start=1):
        last = number % steps == 0 or number == len(loader)
        with without_sync(model, last):
            loss = model(**batch).loss
            (loss / steps).backward()
        if not last:
            continue
        if args.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if number // steps == args.steps:
            break
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
