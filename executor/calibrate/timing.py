"""How long a call takes, as bounds over its repetitions."""

import time
from collections.abc import Callable

import torch

Bounds = tuple[float, float, float]
FEWEST, MOST = 4, 50


def seconds_of(call: Callable[[], object], device: torch.device, budget: float) -> Bounds:
    """Longest, expected and shortest seconds of a call: 90th, 30th and 10th percentile of its repetitions.

    The 30th stands for a machine without other work, which is what a plan is for. At least FEWEST repetitions after
    two that warm up, then as many as `budget` seconds allow.
    """
    for _ in range(2):
        call()
    _wait(device)
    found: list[float] = []
    end = time.perf_counter() + budget
    while len(found) < FEWEST or (time.perf_counter() < end and len(found) < MOST):
        start = time.perf_counter()
        call()
        _wait(device)
        found.append(time.perf_counter() - start)
    return bounds_of(found)


def bounds_of(values: list[float]) -> Bounds:
    """The 90th, 30th and 10th percentile, by nearest rank."""
    ordered = sorted(values)
    last = len(ordered) - 1
    slow, usual, fast = (ordered[round(share * last)] for share in (0.9, 0.3, 0.1))
    return slow, usual, fast


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
