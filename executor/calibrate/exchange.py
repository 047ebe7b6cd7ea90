"""Collectives among processes of this machine. As a program it is one of them: RANK RANKS MEETING-FILE DEVICE."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.planner.speed.calibration.record import Exchange

if TYPE_CHECKING:
    import torch

SIZES = {"cpu": (2**12, 2**16, 2**20, 2**23), "cuda": (2**12, 2**16, 2**20, 2**24, 2**28)}
_REPEATS = 6
_TIMEOUT_SECONDS = 120


def exchanges(ranks: int, device: str) -> tuple[Exchange, ...]:
    """Each collective at each size among `ranks` processes; none where they cannot be started or end badly."""
    if ranks < 2:
        return ()
    with TemporaryDirectory() as folder:
        words = [str(ranks), str(Path(folder) / "meeting"), device]
        command = own_command("gpu_plan.executor.calibrate.exchange")
        environment = own_environment(os.environ)
        children = [
            subprocess.Popen(
                [*command, str(rank), *words],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            said = [child.communicate(timeout=_TIMEOUT_SECONDS)[0] for child in children]
        except subprocess.TimeoutExpired:
            return ()
        finally:
            for child in children:
                child.kill()
                child.wait()
    if any(child.returncode for child in children):
        return ()
    return tuple(_read(said[0], ranks))


def _read(text: str, ranks: int) -> Iterator[Exchange]:
    for kind, num_bytes, seconds in json.loads(text):
        slow, usual, fast = seconds
        yield Exchange(kind=kind, ranks=ranks, num_bytes=num_bytes, seconds=(slow, usual, fast))


def _rank(rank: int, ranks: int, meeting: str, kind: str) -> None:
    import torch
    import torch.distributed as dist

    from gpu_plan.executor.calibrate.timing import bounds_of

    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks
    )
    found = []
    for num_bytes in SIZES[kind]:
        whole = torch.ones(num_bytes // 4 // ranks * ranks, device=device)
        part = torch.ones(whole.numel() // ranks, device=device)
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": partial(dist.all_reduce, whole),
            "all_gather": partial(dist.all_gather_into_tensor, whole, part),
            "reduce_scatter": partial(dist.reduce_scatter_tensor, part, whole),
        }
        for name, call in calls.items():
            try:
                times = [_timed(call, device) for _ in range(_REPEATS + 2)][2:]
            except RuntimeError:  # gloo lacks some
                continue
            found.append((name, whole.nbytes, bounds_of(times)))
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def _timed(call: Callable[[], object], device: "torch.device") -> float:
    import torch
    import torch.distributed as dist

    dist.barrier()
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


if __name__ == "__main__":
    _rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
