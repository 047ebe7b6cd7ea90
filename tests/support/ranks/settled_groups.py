"""Functional collectives that are waited for until gloo's thread has let go of their tensors.

torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: runLoop marks a work as done inside AsyncWork::execute and drops its
own reference after that: until then the thread may be the last to hold what a collective put out, and frees it unseen
by the profiler, which watches ours. With one thread for a group, a barrier that is done says that the thread has
dropped what came before it. NCCL has no such threads; no tensor is made, kept or dropped here.
"""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

_KEPT: list[Any] = []
"""The library, whose kernel goes with it."""
_REST = 0.005
_ALONE: list[Any] = []
"""Groups whose ranks alone wait for one another: stages of a pipeline come to their waits at other times. None: all."""


def one_thread_each() -> None:
    """From now on a gloo group has one thread. Before any group is made."""
    made: Any = distributed_c10d.ProcessGroupGloo

    class OneThread(made):  # type: ignore[misc]
        def __init__(self, store: Any, rank: int, size: int, timeout: Any = None) -> None:
            options = made._Options()
            options._devices = [made.create_default_device()]
            options._threads = 1
            if timeout is not None:
                options._timeout = timeout
            super().__init__(store, rank, size, options)

    vars(distributed_c10d)["ProcessGroupGloo"] = OneThread


def among(*groups: Any) -> None:
    """From now on these are the groups whose ranks are to come to every wait together; none: all are."""
    _ALONE[:] = groups


def settle_waits() -> None:
    """Every wait of a functional collective, from Python or from autograd, is followed by a barrier of every group, or
    of those that `among` names."""
    wait = torch.ops._c10d_functional.wait_tensor.default

    def settled(tensor: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = wait._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, tensor)
        for group in _ALONE or list(distributed_c10d._world.pg_map):
            if dist.get_rank(group) >= 0:
                group.barrier().wait()
        if _ALONE:
            time.sleep(_REST)  # other groups' barriers are not there to let the threads come to it
        return out

    library = torch.library.Library("_c10d_functional", "IMPL")
    library.impl("wait_tensor", settled, "CPU")
    _KEPT.append(library)
