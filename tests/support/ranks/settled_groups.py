"""Functional collectives that are waited for until gloo's thread has let go of their tensors.

torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: runLoop marks a work as done inside AsyncWork::execute and drops its
own reference after that: until then the thread may be the last to hold what a collective put out, and frees it unseen
by the profiler, which watches ours. With one thread for a group, a barrier that is done says that the thread has
dropped what came before it. What a collective was given is the work's alone from then on, and dies with it, in
whichever thread comes last: it is held here until the wait, where ProcessGroupNCCL lets go of it as well
(TensorShelf::unstash). NCCL has no such threads; no tensor is made here.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

_KEPT: list[Any] = []
"""The library, whose kernel goes with it."""
_REST = 0.005
_GIVEN: dict[int, torch.Tensor] = {}
"""What collectives that nobody has waited for were given, by the address of what they put out."""
_COLLECTIVES = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
"""Functional ones that put out other tensors than they are given."""
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
        _GIVEN.pop(tensor.data_ptr(), None)
        return out

    library = torch.library.Library("_c10d_functional", "IMPL")
    library.impl("wait_tensor", settled, "CPU")
    for name in _COLLECTIVES:
        library.impl(name, _holding(getattr(torch.ops._c10d_functional, name).default), "CPU")
    _KEPT.append(library)


def _holding(collective: Any) -> Callable[..., torch.Tensor]:
    """The same collective; what it is given lives until its wait."""

    def run(tensor: torch.Tensor, *words: Any) -> torch.Tensor:
        out: torch.Tensor = collective._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, tensor, *words)
        _GIVEN[out.data_ptr()] = tensor
        return out

    return run
