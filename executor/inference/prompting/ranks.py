"""Which process of a run this is, what it shares with the others, and how they meet."""

import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from gpu_plan.executor.inference.job import InferenceJob
from gpu_plan.planner.errors import PreflightError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One process among those that torchrun started; alone where none did."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    replicas: int = 1
    on_cpu: bool = True

    @property
    def per_replica(self) -> int:
        return self.world_size // self.replicas

    @property
    def replica(self) -> int:
        return self.rank // self.per_replica

    @property
    def writes(self) -> bool:
        """Whether this rank keeps its replica's results: all of its ranks have the same."""
        return self.rank % self.per_replica == 0

    @property
    def apart(self) -> bool:
        """Whether each replica is a world of its own: models are spread over all processes of a torch world."""
        return 1 < self.per_replica < self.world_size

    def meet(self) -> None:
        """Waits for all ranks, those of other replicas too."""
        if self.world_size == 1:
            return
        start(self)
        if self.apart:
            _meet_at_store(self)
            return
        import torch.distributed as dist

        dist.barrier()


def ranks_of(job: InferenceJob, environment: Mapping[str, str] | None = None) -> Ranks:
    """This process. PreflightError where the launcher started another number of them than the plan has."""
    env = os.environ if environment is None else environment
    world = int(env.get("WORLD_SIZE", "1"))
    if world != job.world_size:
        raise PreflightError(f"{world} processes were started, the plan has {job.world_size} ranks: launch it by plan")
    return Ranks(
        rank=int(env.get("RANK", "0")),
        local_rank=int(env.get("LOCAL_RANK", "0")),
        world_size=world,
        replicas=job.replicas,
        on_cpu=job.on_cpu,
    )


def start(ranks: Ranks) -> None:
    """Joins the processes of a world, once: gloo on a CPU, NCCL on GPUs."""
    import torch
    import torch.distributed as dist

    if ranks.world_size == 1 or dist.is_initialized():
        return
    world: dict[str, Any] = {}
    if ranks.apart:
        store = dist.PrefixStore(f"replica-{ranks.replica}", _store())
        world = {"store": store, "rank": ranks.rank % ranks.per_replica, "world_size": ranks.per_replica}
    if ranks.on_cpu:
        dist.init_process_group("gloo", **world)
    else:
        torch.cuda.set_device(ranks.local_rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", ranks.local_rank), **world)


_meetings = itertools.count()


def _meet_at_store(ranks: Ranks) -> None:
    """Every rank counts itself at the launcher's store, then waits for the others."""
    store, name = _store(), f"plan-meeting-{next(_meetings)}"
    if store.add(name, 1) == ranks.world_size:
        store.set(f"{name}-all", "1")
    store.wait([f"{name}-all"])


@functools.cache
def _store() -> Any:
    """torchrun's own store, which its agent holds."""
    import torch.distributed as dist

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(host, port, is_master=False, timeout=timedelta(hours=1))


def share(items: Sequence[T], ranks: Ranks) -> list[T]:
    """What this rank's replica runs of `items`, in order.

    Replicas of one rank each share by accelerate's `PartialState.split_between_processes`.
    """
    if ranks.replicas == 1:
        return list(items)
    if ranks.per_replica == 1:
        from accelerate import PartialState

        start(ranks)
        state: Any = PartialState(cpu=True) if ranks.on_cpu else PartialState()
        if state.num_processes != ranks.world_size:
            raise PreflightError(f"accelerate sees {state.num_processes} of {ranks.world_size} processes")
        with state.split_between_processes(list(items)) as mine:
            return list(mine)
    size, rest = divmod(len(items), ranks.replicas)
    begin = ranks.replica * size + min(ranks.replica, rest)
    return list(items[begin : begin + size + (ranks.replica < rest)])
