"""Whether collectives give what they must, and how fast: run on every rank of a trial launch."""

import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import (
    broadcast,
    broadcast_object_list,
    gather_object,
    set_seed,
    synchronize_rng_states,
)

from gpu_plan.executor.doctor.trial.outcome import Speed, Tested

_ROUNDS = 5
_MIB = 2**20


def tests(accelerator: Accelerator) -> Iterator[Tested]:
    """Each collective once, with values that a wrong one cannot give."""
    rank, world, device = accelerator.process_index, accelerator.num_processes, accelerator.device
    own = torch.arange(3, device=device, dtype=torch.float32) + 10 * rank
    everything = torch.cat([torch.arange(3, dtype=torch.float32) + 10 * other for other in range(world)])
    yield _equal("gather", accelerator.gather(own), everything)
    yield _equal("reduce (sum)", accelerator.reduce(own, reduction="sum"), everything.reshape(world, 3).sum(0))
    yield _equal("reduce (mean)", accelerator.reduce(own, reduction="mean"), everything.reshape(world, 3).mean(0))
    last = world - 1
    yield _equal("broadcast", broadcast(own.clone(), from_process=last), torch.arange(3.0) + 10 * last)
    told = broadcast_object_list([f"from {rank}"], from_process=last)[0] if world > 1 else f"from {last}"
    yield Tested(name="broadcast of objects", passed=told == f"from {last}", detail=str(told))
    objects = list(gather_object([rank])) if world > 1 else [rank]
    yield Tested(name="gather of objects", passed=objects == list(range(world)), detail=str(objects))
    uneven = torch.full((2, rank + 1), float(rank), device=device)
    padded = accelerator.pad_across_processes(uneven, dim=1, pad_index=-1)
    yield Tested(
        name="padding of uneven shapes", passed=tuple(padded.shape) == (2, world), detail=str(tuple(padded.shape))
    )
    if rank == last:
        accelerator.set_trigger()
    yield Tested(name="trigger of one rank reaches all", passed=bool(accelerator.check_trigger()))
    yield from _randomness(accelerator)


def _equal(name: str, found: torch.Tensor, wanted: torch.Tensor) -> Tested:
    same = found.shape == wanted.shape and torch.equal(found.cpu().float(), wanted)
    return Tested(name=name, passed=same, detail="" if same else f"{found.tolist()} instead of {wanted.tolist()}")


def _randomness(accelerator: Accelerator) -> Iterator[Tested]:
    """Ranks seeded apart draw apart, and draw alike once their states are synchronised."""
    set_seed(1234, device_specific=True)
    apart = _drawn(accelerator)
    alone = accelerator.num_processes == 1
    yield Tested(name="seeds by rank differ", passed=alone or len({tuple(row) for row in apart}) == len(apart))
    kinds = ["torch", "cuda"] if accelerator.device.type == "cuda" else ["torch"]
    synchronize_rng_states(kinds)
    alike = _drawn(accelerator)
    yield Tested(
        name="synchronised random states agree", passed=len({tuple(row) for row in alike}) == 1, detail=str(alike)
    )


def _drawn(accelerator: Accelerator) -> list[list[float]]:
    """What each rank draws next, one row for each."""
    draw = torch.rand(4).to(accelerator.device)
    rows: list[list[float]] = accelerator.gather(draw).reshape(accelerator.num_processes, 4).tolist()
    return rows


def speeds(accelerator: Accelerator, largest_bytes: int) -> Iterator[Speed]:
    """Bytes and seconds of each collective, on this rank; those that the backend lacks are left out."""
    if accelerator.num_processes == 1:
        return
    sizes = [size for size in (_MIB, 16 * _MIB, 64 * _MIB, 256 * _MIB) if size <= largest_bytes] or [largest_bytes]
    for size in sizes:
        for name, make in _COLLECTIVES.items():
            try:
                run = make(accelerator, size)
                seconds = _timed(run, accelerator)
            except (RuntimeError, NotImplementedError, ValueError):
                continue  # gloo does not have all of them on every device
            yield Speed(collective=name, bytes=size, seconds=seconds)


def _timed(run: Callable[[], object], accelerator: Accelerator) -> float:
    run()
    taken = []
    for _ in range(_ROUNDS):
        accelerator.wait_for_everyone()
        _settle(accelerator)
        begun = time.perf_counter()
        run()
        _settle(accelerator)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _settle(accelerator: Accelerator) -> None:
    if accelerator.device.type == "cuda":
        torch.cuda.synchronize()


def _whole(accelerator: Accelerator, size: int) -> torch.Tensor:
    """A float tensor of about `size` bytes that divides among the ranks."""
    count = size // 4 // accelerator.num_processes * accelerator.num_processes
    return torch.ones(count, device=accelerator.device)


def _all_reduce(accelerator: Accelerator, size: int) -> Callable[[], object]:
    tensor = _whole(accelerator, size)
    return lambda: dist.all_reduce(tensor)


def _all_gather(accelerator: Accelerator, size: int) -> Callable[[], object]:
    whole = _whole(accelerator, size)
    part = whole[: len(whole) // accelerator.num_processes].clone()
    return lambda: dist.all_gather_into_tensor(whole, part)


def _reduce_scatter(accelerator: Accelerator, size: int) -> Callable[[], object]:
    whole = _whole(accelerator, size)
    part = whole[: len(whole) // accelerator.num_processes].clone()
    return lambda: dist.reduce_scatter_tensor(part, whole)


def _broadcast(accelerator: Accelerator, size: int) -> Callable[[], object]:
    tensor = _whole(accelerator, size)
    return lambda: dist.broadcast(tensor, 0)


_COLLECTIVES: dict[str, Callable[[Accelerator, int], Callable[[], object]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
}
