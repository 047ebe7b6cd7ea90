"""Collectives between the ranks of a group, as Megatron-core and Transformer Engine call them."""

from typing import Any

import torch

_GROUPS: dict[int, Any] = {}


def begin_groups() -> None:
    """Forgets the groups of the last process group."""
    _GROUPS.clear()


def _group(ranks: int) -> Any:
    import torch.distributed as dist

    if ranks not in _GROUPS:
        _GROUPS[ranks] = dist.new_group(list(range(ranks)))
    return _GROUPS[ranks]


def gather(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """Along the first dimension (transformer_engine/pytorch/distributed.py: gather_along_first_dim)."""
    import torch.distributed as dist

    out = torch.empty((x.shape[0] * ranks, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_single(out, x.contiguous(), group=_group(ranks))
    return out


def gather_into(out: torch.Tensor, x: torch.Tensor, ranks: int) -> torch.Tensor:
    """The same into what is there."""
    import torch.distributed as dist

    dist.all_gather_single(out, x.contiguous(), group=_group(ranks))
    return out


def scatter_sum(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """Sums, and leaves this rank's rows (reduce_scatter_along_first_dim)."""
    import torch.distributed as dist

    out = torch.empty((x.shape[0] // ranks, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.reduce_scatter_single(out, x.contiguous(), group=_group(ranks))
    return out


def all_sum(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """In place."""
    import torch.distributed as dist

    dist.all_reduce(x, group=_group(ranks))
    return x


def exchange(x: torch.Tensor, ranks: int, rows: int | None = None) -> torch.Tensor:
    """Each rank's rows to the ranks they are for; `rows` that come back, as many as go where it is not said
    (megatron/core/tensor_parallel/mappings.py: _AllToAll)."""
    import torch.distributed as dist

    out = torch.empty((x.shape[0] if rows is None else rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_to_all_single(out, x.contiguous(), group=_group(ranks))
    return out


class GatheredRows(torch.autograd.Function):
    """tensor_parallel/mappings.py: _GatherFromSequenceParallelRegion, into a buffer that stays or not; on the way back
    the gradients of all ranks are summed and shared out."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: int, into: torch.Tensor | None = None) -> torch.Tensor:
        ctx.ranks = ranks
        if into is None:
            return gather(x, ranks)
        return gather_into(into.view(-1, x.shape[-1])[: x.shape[0] * ranks], x, ranks)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return scatter_sum(grads[0], ctx.ranks), None, None
