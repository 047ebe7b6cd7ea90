"""Tokens sent to the ranks of their experts, and back (megatron/core/transformer/moe/token_dispatcher.py)."""

from typing import Any

import torch

from gpu_plan.planner.megatron.architecture import Experts
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.trace.megatron.experts.permute import permuted, selected, sorted_chunks, unpermuted
from gpu_plan.planner.trace.megatron.experts.router import capacity_of
from gpu_plan.planner.trace.megatron.group import GatheredRows, exchange, gather, scatter_sum


class _Exchanged(torch.autograd.Function):
    """tensor_parallel/mappings.py: _AllToAll; `rows` come for those that go."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: int, rows: int) -> torch.Tensor:
        ctx.ranks, ctx.rows = ranks, x.shape[0]
        return exchange(x, ranks, rows)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return exchange(grads[0], ctx.ranks, ctx.rows), None, None


class _Scattered(torch.autograd.Function):
    """_ReduceScatterToSequenceParallelRegion."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: int) -> torch.Tensor:
        ctx.ranks = ranks
        return scatter_sum(x, ranks)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return gather(grads[0], ctx.ranks), None


class _Beside(torch.autograd.Function):
    """Keeps the weights of all tokens until the layer's backward pass begins: the dispatcher names them for as long
    (`self.probs`, and until the next micro batch)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weights)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return grads[0], None


class AllToAll:
    """MoEAlltoAllTokenDispatcher: of each token a copy for each of its experts, sent where these are."""

    def __init__(self, experts: Experts, layout: Layout) -> None:
        self._experts, self._layout = experts, layout
        self.gathered: torch.Tensor | None = None
        """Nothing is gathered in a buffer that stays."""
        self._held: tuple[Any, ...] = ()
        """What it remembers between its calls; Megatron-core's does so until the next micro batch."""
        self._sent = 0
        """Rows that went, which come back."""

    def send(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`dispatch_preprocess` and `token_dispatch`: x is [tokens, hidden]."""
        experts, layout = self._experts, self._layout
        most = capacity_of(experts, layout, x.shape[0])
        count = x.shape[0] * experts.chosen if most is None else most * experts.count
        padded = most is not None
        self._sent = count
        rows, picked, order = permuted(x, weights, chosen, count, fused=layout.permute_fusion, padded=padded)
        self._held = (order, chosen, weights)
        if layout.expert == 1:
            return rows, picked
        came = int(count * layout.load)
        return _Exchanged.apply(rows, layout.expert, came), _Exchanged.apply(picked, layout.expert, came)

    def arrive(self, x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`dispatch_postprocess`: what an expert's own ranks got, together, and by expert."""
        ranks = self._layout.expert_tensor
        if ranks > 1:
            x, weights = GatheredRows.apply(x, ranks, None), GatheredRows.apply(weights, ranks, None)
        if self._sorts:
            x, weights = sorted_chunks(x, weights, **self._how)
        return x, weights

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """`combine_preprocess`."""
        if self._sorts:
            x, _ = sorted_chunks(x, None, **self._how)
        if self._layout.expert_tensor > 1:
            wide = x.to(self._held[2].dtype)
            x = _Scattered.apply(wide, self._layout.expert_tensor).to(x.dtype)
        return x

    def back(self, x: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """`token_combine` and `combine_postprocess`."""
        if self._layout.expert > 1:
            x = _Exchanged.apply(x, self._layout.expert, self._sent)
        found = unpermuted(x, self._held[0], shape, **_sums(self._layout))
        kept: torch.Tensor = _Beside.apply(found, self._held[2])
        # What is going to be run again remembers until then: this pass keeps nothing else.
        self._held = () if torch.is_grad_enabled() else self._held
        return kept

    @property
    def _sorts(self) -> bool:
        """Whether rows of several experts are copied into another order: of one rank, all as long as one another, they
        stand in it already."""
        alone = self._layout.expert * self._layout.expert_tensor == 1
        return self._experts.count > self._layout.expert and not (alone and self._layout.capacity is not None)

    @property
    def _how(self) -> dict[str, bool]:
        return {"fused": self._layout.permute_fusion, "padded": self._layout.capacity is not None}


class AllGather:
    """MoEAllGatherTokenDispatcher: every rank gets every token, and computes what its experts are chosen by."""

    def __init__(self, experts: Experts, layout: Layout) -> None:
        self._experts, self._layout = experts, layout
        self._ranks = layout.expert * layout.expert_tensor
        self._held: tuple[Any, ...] = ()
        self.gathered: torch.Tensor | None = None
        """Megatron-core's buffer that stays (utils.py: GlobalMemoryBuffer)."""

    def send(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`dispatch_preprocess` and `token_dispatch`."""
        self._held = (chosen,)
        if self._ranks == 1:
            return x, weights
        with torch.no_grad():
            self._held = (gather(chosen, self._ranks),)
        return GatheredRows.apply(x, self._ranks, self.gathered), GatheredRows.apply(weights, self._ranks, None)

    def arrive(self, x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`dispatch_postprocess`."""
        local = self._experts.count // self._layout.expert
        most = capacity_of(self._experts, self._layout, x.shape[0])
        share = int(x.shape[0] * self._experts.chosen // self._layout.expert * self._layout.load)
        count = share if most is None else most * local
        own = self._held[0][:, :local].contiguous()
        mine = weights[:, :local].contiguous()
        shape = x.shape
        rows, order = selected(x, own, count, fused=self._layout.permute_fusion)
        picked: torch.Tensor = _Chosen.apply(mine.T.contiguous(), own.T.contiguous(), count)
        self._held = (order, own, shape, picked)
        return rows, picked

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """`combine_preprocess`."""
        return unpermuted(x, self._held[0], self._held[2], **_sums(self._layout))

    def back(self, x: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """`token_combine` and `combine_postprocess`."""
        wide, self._held = self._held[3].dtype, ()
        if self._ranks == 1:
            return x
        found: torch.Tensor = _Scattered.apply(x.to(wide), self._ranks)
        return found.to(x.dtype)


def _sums(layout: Layout) -> dict[str, bool]:
    return {"fused": layout.permute_fusion, "deterministic": layout.deterministic}


class _Chosen(torch.autograd.Function):
    """`masked_select`, of which the host would have to read how many there are: keeps the values and the mask."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mask: torch.Tensor, count: int) -> torch.Tensor:
        ctx.save_for_backward(x, mask)
        return torch.empty((count,), dtype=x.dtype, device=x.device)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, _ = ctx.saved_tensors
        return torch.zeros_like(x), None, None


def dispatcher_of(experts: Experts, layout: Layout) -> AllToAll | AllGather:
    """The layout's own."""
    return (AllGather if layout.dispatcher == "allgather" else AllToAll)(experts, layout)
