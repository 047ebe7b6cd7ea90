"""Tokens in the order of their experts, and back (megatron/core/transformer/moe/moe_utils.py: permute, unpermute,
sort_chunks_by_idxs).

Fused: Transformer Engine's Triton kernels (transformer_engine/pytorch/permutation.py, triton/permutation.py of release
2.11). Custom functions have untyped contexts, hence Any.
"""

from typing import Any

import torch

_BLOCK = 1024
"""Tokens of a program of `make_row_id_map`."""


class _Permuted(torch.autograd.Function):
    """_moe_permute_mask_map: keeps the map of rows."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        tokens, experts = chosen.shape
        rows = torch.empty((tokens, experts * 2 + 1), dtype=torch.int32, device=x.device)
        workspace = torch.empty((experts, -(-tokens // _BLOCK)), dtype=torch.int32, device=x.device)
        rows.zero_()
        del workspace
        out = torch.empty((count, x.shape[1]), dtype=x.dtype, device=x.device)
        out.zero_()
        permuted = torch.empty((count,), dtype=weights.dtype, device=x.device)
        ctx.save_for_backward(rows)
        ctx.shapes = (x.shape, weights.shape)
        ctx.mark_non_differentiable(rows)
        return out, permuted, rows

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x_shape, weights_shape = ctx.shapes
        of_input = torch.empty(x_shape, dtype=grads[0].dtype, device=grads[0].device)
        of_input.zero_()
        of_weights = torch.empty(weights_shape, dtype=grads[1].dtype, device=grads[1].device)
        return of_input, of_weights, None, None


class _Unpermuted(torch.autograd.Function):
    """_moe_unpermute_mask_map without weights."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = x.shape
        return torch.empty(shape, dtype=x.dtype, device=x.device).zero_()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return torch.empty(ctx.shape, dtype=grads[0].dtype, device=grads[0].device).zero_(), None, None


class _Sorted(torch.autograd.Function):
    """_moe_chunk_sort: keeps the map of rows; weights beside the tokens where there are some."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor | None) -> Any:
        rows = torch.empty((x.shape[0],), dtype=torch.int32, device=x.device)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        out.zero_()
        ctx.save_for_backward(rows)
        ctx.weighted = weights is not None
        return out if weights is None else (out, torch.empty_like(weights))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        of_input = torch.empty(grads[0].shape, dtype=grads[0].dtype, device=grads[0].device)
        of_input.zero_()
        return of_input, torch.empty_like(grads[1]) if ctx.weighted else None


def permuted(
    x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, count: int, *, fused: bool, padded: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows [count, hidden] by expert, their weights [count], and what brings them back; `padded`: equally many of each
    expert."""
    if fused:
        found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _Permuted.apply(x, weights, chosen, count)
        return found
    if padded:
        return _padded(x, weights, chosen, count)
    by_expert = chosen.bool().T.contiguous()
    order = by_expert.reshape(-1).argsort(descending=True, stable=True)[:count]
    rows = order % x.shape[0]
    picked = weights.T.contiguous().reshape(-1)[order]
    return x.index_select(0, rows), picked, rows


def _padded(
    x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens, experts = chosen.shape
    by_expert = chosen.to(dtype=torch.int8).T.contiguous()
    rows = by_expert.argsort(dim=-1, descending=True, stable=True)[:, : count // experts].contiguous().view(-1)
    flat = weights.T.contiguous().view(-1)
    places = torch.arange(experts, device=x.device).unsqueeze(-1) * tokens + rows.view(experts, -1)
    picked = flat.index_select(0, places.view(-1))
    return x.index_select(0, rows), picked, rows


def selected(x: torch.Tensor, chosen: torch.Tensor, count: int, *, fused: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The same without weights."""
    if fused:
        found = _Permuted.apply(x, torch.empty(0, dtype=x.dtype, device=x.device), chosen, count)
        return found[0], found[2]
    order = chosen.bool().T.contiguous().reshape(-1).argsort(descending=True, stable=True)[:count]
    rows = order % x.shape[0]
    return x.index_select(0, rows), rows


def unpermuted(
    x: torch.Tensor, rows: torch.Tensor, shape: torch.Size, *, fused: bool, deterministic: bool
) -> torch.Tensor:
    """Sums [tokens, hidden] over the experts of each token. With `deterministic` the gradient of what is added keeps
    the experts' whole output (torch, derivatives.yaml: index_add; scatter_add keeps the index alone)."""
    if fused:
        found: torch.Tensor = _Unpermuted.apply(x, rows, shape)
        return found
    out = torch.zeros(shape, dtype=x.dtype, device=x.device)
    if deterministic:
        out.index_add_(0, rows, x)
    else:
        out.scatter_add_(0, rows.unsqueeze(1).expand(-1, shape[-1]), x)
    return out.to(dtype=x.dtype)


def sorted_chunks(
    x: torch.Tensor, weights: torch.Tensor | None, *, fused: bool, padded: bool
) -> tuple[torch.Tensor, Any]:
    """Rows of several ranks, of each by expert, by expert; or the other way. `padded`: equally many of each."""
    if padded:
        halves = x.view(2, -1, *x.shape[1:]).transpose(0, 1).contiguous().flatten(end_dim=1)
        return halves, None if weights is None else weights.view(2, -1).transpose(0, 1).contiguous().flatten()
    if fused:
        found = _Sorted.apply(x, weights)
        return (found, None) if weights is None else found
    halves = (x.shape[0] // 2, x.shape[0] - x.shape[0] // 2)
    out = torch.cat(torch.split(x, halves)[::-1], dim=0)
    return out, None if weights is None else torch.cat(torch.split(weights, halves)[::-1], dim=0)
