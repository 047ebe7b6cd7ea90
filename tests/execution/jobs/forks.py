"""Trains while children are forked, ended and left: none of it may touch the rank's record or end the rank."""

import multiprocessing
import os
import signal
import sys

import torch


def work(number: int) -> int:
    return number + 1


model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    context = multiprocessing.get_context("fork")
    pool = context.Pool(2)
    pool.map(work, range(4))
    pool.terminate()  # SIGTERM to forked children
    child = os.fork()
    if child == 0:
        sys.exit(7)  # leaves through every exit function
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    child = os.fork()
    if child == 0:
        signal.pause()
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
if __name__ == "__main__":
    print("trained")
