"""A plain torch loop: DDP where several processes were started, one device otherwise."""

import argparse
import os

import torch
import torch.distributed as dist
from tiny import LENGTH, VOCABULARY, tiny_llama, write_truth

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--autocast", action="store_true")
parser.add_argument("--shard", action="store_true", help="fully_shard instead of DDP")
parser.add_argument("--alone", action="store_true", help="forget to join the processes")
arguments = parser.parse_args()

model = tiny_llama()
parameters = sum(p.numel() for p in model.parameters())
joined = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not arguments.alone
if joined:
    dist.init_process_group("gloo")
    if arguments.shard:
        from torch.distributed.fsdp import fully_shard

        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
losses = []
for _ in range(arguments.steps):
    total = 0.0
    for _ in range(arguments.accumulation):
        ids = torch.randint(VOCABULARY, (arguments.batch, LENGTH), generator=generator)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.autocast):
            loss = model(input_ids=ids, labels=ids).loss / arguments.accumulation
        loss.backward()
        total += float(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    losses.append(total)
write_truth(losses=losses, parameters=parameters)
if joined:
    dist.destroy_process_group()
