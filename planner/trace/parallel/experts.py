"""Tokens of experts that several ranks hold, sent evenly, or as many as may be to one rank: how many go where is read
on the host, and data decides it.

transformers 5.23 distributed/expert_parallel.py: AllToAllEP counts the tokens of each expert, exchanges the counts with
the ranks of its group, and reads both to say how long what it sends and receives is.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.trace.inputs.known import KnownValues


def even_choices(top_k_index: torch.Tensor, experts: int, own: int) -> torch.Tensor:
    """Indices like `top_k_index` [tokens, experts per token], each expert as often as the others, and each rank's `own`
    as often as another's where there are fewer choices than experts: ranks take turns. Made of operators, so that their
    values can be followed."""
    place = torch.arange(top_k_index.numel(), device=top_k_index.device)
    ranks = experts // own
    return (place % ranks * own + place // ranks % own).view(top_k_index.shape)


def crowded_choices(top_k_index: torch.Tensor, experts: int, own: int) -> torch.Tensor:
    """Indices like `top_k_index`, as many of them as can be among the first `own` experts: a router chooses each expert
    once a token at most, so that a rank gets min(experts per token, own) of each token's."""
    chosen = top_k_index.shape[-1]
    here = min(chosen, own)
    place = torch.arange(top_k_index.numel(), device=top_k_index.device).view(top_k_index.shape)
    token, slot = place // chosen, place % chosen
    near = (token * here + slot) % own
    if here == chosen:
        return near
    return torch.where(slot < here, near, own + (token * (chosen - here) + slot - here) % (experts - own))


@contextlib.contextmanager
def dispatched(known: KnownValues, *, crowded: bool = False) -> Iterator[None]:
    """Within, all ranks choose every expert as often as the others, or those of the first rank as often as may be, and
    what is received of them is in `known`."""
    from transformers.distributed import expert_parallel

    dispatch, exchange = expert_parallel.AllToAllEP._dispatch_tokens, expert_parallel.all_to_all_single

    def chosen(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        experts = self.num_local_experts * self.ep_mesh.size()
        choices = (crowded_choices if crowded else even_choices)(top_k_index, experts, self.num_local_experts)
        return dispatch(self, hidden_states, choices, top_k_weights)

    def exchanged(received: Any, sent: Any, group: Any = None) -> None:
        exchange(received, sent, group=group)
        counts = known.get(sent)
        if counts is not None:
            # The first rank of the group receives of each what it sends to itself: all see the same.
            known.put(received, counts[:1].expand_as(counts))

    with (
        mock.patch.object(expert_parallel.AllToAllEP, "_dispatch_tokens", chosen),
        mock.patch.object(expert_parallel, "all_to_all_single", exchanged),
    ):
        yield
