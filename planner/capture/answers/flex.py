"""FlexAttention under capture: the fused kernel that inductor makes of it, by what it saves and returns.

torch/_higher_order_ops/flex_attention.py (2.13): FlexAttentionAutogradOp (query, key, value, output and log-sum-exp are
kept for backward); torch/_inductor/kernel/flex/flex_attention.py: flex_attention (the output lies as the query does,
log-sum-exp and largest scores are in fp32) and flex_attention_backward (delta is in fp32, gradients lie as their
operands do).
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch.nn.attention import flex_attention as home

from gpu_plan.planner.errors import InputError

WRAPPER = "_flex_attention_hop_wrapper"
"""What torch.nn.attention.flex_attention compiles by itself, to run the scores one by one."""
_OPERATORS = torch.library.Library("gpu_plan", "FRAGMENT")
_OPERATORS.define("flex_attention_forward(Tensor query, Tensor key, Tensor value) -> (Tensor, Tensor, Tensor)")
_OPERATORS.define(
    "flex_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse,"
    " Tensor delta) -> (Tensor, Tensor, Tensor)"
)
_OPERATORS.define("flex_attention_delta(Tensor out, Tensor grad_out) -> Tensor")


def _statistics(query: torch.Tensor) -> torch.Tensor:
    """One fp32 number of every query [batch, heads, sequence]."""
    return torch.empty(query.shape[:-1], dtype=torch.float32, device="meta")


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _dense(query, (*query.shape[:-1], value.shape[-1])), _statistics(query), _statistics(query)


def _dense(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Without gaps, its dimensions in the order in which those of another lie."""
    order = sorted(range(like.dim()), key=like.stride, reverse=True)
    made = torch.empty([shape[one] for one in order], dtype=like.dtype, device="meta")
    return made.permute([order.index(one) for one in range(like.dim())])


def _backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _dense(query, query.shape), _dense(key, key.shape), _dense(value, value.shape)


_OPERATORS.impl("flex_attention_forward", _forward, "Meta")
_OPERATORS.impl("flex_attention_backward", _backward, "Meta")
_OPERATORS.impl("flex_attention_delta", lambda out, grad_out: _statistics(out), "Meta")


class _Attention(torch.autograd.Function):
    """Queries, keys and values [batch, heads, sequence, head size]; fewer heads of keys where queries share them."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, lse, largest = torch.ops.gpu_plan.flex_attention_forward(query, key, value)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.mark_non_differentiable(lse, largest)
        return out, lse, largest

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        delta = torch.ops.gpu_plan.flex_attention_delta(out, grads[0])
        found: tuple[torch.Tensor, ...] = torch.ops.gpu_plan.flex_attention_backward(
            grads[0], query, key, value, out, lse, delta
        )
        return found


class Flex:
    """What a script does with FlexAttention; `compiled` says whether it has compiled anything."""

    def __init__(self, compiled: Callable[[], bool]) -> None:
        self._compiled = compiled
        self._ran = False

    def lines(self) -> tuple[str, ...]:
        """For people."""
        if not self._ran:
            return ()
        return (
            "flex_attention is planned as the fused kernel that torch.compile makes of it; its time is that of all"
            " blocks, for which of them the mask leaves out is not known without values",
        )

    @contextlib.contextmanager
    def answered(self) -> Iterator[None]:
        """Within, tensors on meta go through the kernel's stand-in. InputError, to whoever calls it uncompiled."""
        original = home.flex_attention_hop

        def called(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if not query.is_meta:
                return original(query, key, value, *args, **kwargs)
            if not self._compiled():
                raise InputError(
                    "flex_attention that is not compiled makes every score of the attention at once, which is not"
                    " planned: compile it, as in torch.compile(flex_attention)"
                )
            self._ran = True
            return _Attention.apply(query, key, value)

        with (
            mock.patch.object(home, "flex_attention_hop", called),
            mock.patch.object(home, "_validate_device"),
            mock.patch.object(home, "_warn_once"),
        ):
            yield
