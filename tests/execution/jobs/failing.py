"""Ends in a stated way, after two good steps: an argument says how, another in which rank."""

import os
import sys
import time

import torch
import torch.distributed as dist

how, culprit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
model = torch.nn.Linear(8, 8)
if world > 1:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def fail():
    if how == "exception":
        raise ValueError("the data is bad")
    if how == "exit":
        sys.exit(3)
    if how == "words":
        sys.exit("no data")
    if how == "memory":
        import resource

        with open("/proc/self/statm") as file:
            data = int(file.read().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (data + 2**26, data + 2**26))
        torch.zeros(2**28)
    if how == "wait":
        print("waiting", flush=True)
        time.sleep(600)
    if how == "interrupt":
        raise KeyboardInterrupt


for _ in range(2):
    step()
if rank == culprit:
    fail()
if how != "well":
    step()
