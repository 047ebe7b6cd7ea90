"""Floating-point operations of one operator call, from torch's own formulas."""

from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from gpu_plan.planner.trace.recording.operators.meta_results import UnknownError, key_of

_ADDED = frozenset({"addmm", "addmv", "addbmm", "baddbmm"})
_FLASH = {
    "aten::_flash_attention_forward": 0,
    "aten::_flash_attention_backward": 1,
    "gpu_plan::flash3_attention_forward": 0,
    "gpu_plan::flash3_attention_backward": 1,
}
"""Position of the query among the arguments; torch's formula takes their layout for heads first."""

_HEADS_FIRST = {"gpu_plan::flex_attention_forward": 0, "gpu_plan::flex_attention_backward": 1}
"""The same of FlexAttention."""
_MOST = 10_000
_counted: dict[tuple[Any, ...], tuple[Any, int]] = {}
"""FLOPs of equal arguments, beside the operator, which the key names by its address: torch's formulas go through all
arguments by a way that is longer than the operator's own on meta."""
_PRODUCTS = "gpu_plan::head_products"
"""Of rows by all words, whose results no kernel writes (planner/trace/megatron/fused_head.py)."""


def operator_flops(func: Any, args: tuple[Any, ...], out: Any) -> int:
    """FLOPs of `func(*args)`; 0 for operators whose time is memory traffic (torch.utils.flop_counter)."""
    place = _FLASH.get(func._schema.name)
    if place is not None:
        return _flash_flops(args, place)
    if func._schema.name in _HEADS_FIRST:
        return _heads_first_flops(args, _HEADS_FIRST[func._schema.name])
    if func._schema.name == _PRODUCTS:
        rows, weight = args[:2]
        return 2 * int(rows.shape[0]) * int(weight.shape[0]) * int(weight.shape[1])
    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return 0
    try:
        known = _counted.get(key := (id(func), key_of(args)))
    except (UnknownError, TypeError):  # TypeError: not hashable
        return int(formula(*args, out_val=out))
    if known is None:
        if len(_counted) >= _MOST:
            _counted.clear()
        known = _counted[key] = func, int(formula(*args, out_val=out))
    return known[1]


def _flash_flops(args: tuple[Any, ...], query_at: int) -> int:
    """Attention over [batch, sequence, heads, head size], or over sequences laid end to end, taken as equally long."""
    query, key, value = args[query_at : query_at + 3]
    if query.dim() == 4:
        q, k, v = ((t.shape[0], t.shape[2], t.shape[1], t.shape[3]) for t in (query, key, value))
    else:
        starts = args[query_at + 5] if query_at else args[3]
        count = max(1, starts.numel() - 1)
        q, k, v = ((count, t.shape[1], -(-t.shape[0] // count), t.shape[2]) for t in (query, key, value))
    return int(sdpa_backward_flop_count(q, q, k, v) if query_at else sdpa_flop_count(q, k, v))


def _heads_first_flops(args: tuple[Any, ...], query_at: int) -> int:
    """Attention over [batch, heads, sequence, head size]; queries may share the heads of keys and values."""
    q, k, v = (tuple(one.shape) for one in args[query_at : query_at + 3])
    k, v = ((*q[:2], *shape[2:]) for shape in (k, v))
    return int(sdpa_backward_flop_count((*q[:3], v[3]), q, k, v) if query_at else sdpa_flop_count(q, k, v))


def described(func: Any, name: str, args: tuple[Any, ...]) -> str:
    """The operator's name, for fused attention with what its speed depends on: `..._attention[causal,128]`.

    That is whether it skips the half above the diagonal, and the size of a head.
    """
    if "attention" not in name:
        return name
    places = {argument.name: index for index, argument in enumerate(func._schema.arguments)}
    if "is_causal" not in places or "query" not in places:
        return name
    query, at = args[places["query"]], places["is_causal"]
    masked = "causal" if at < len(args) and args[at] is True else "full"
    return f"{name}[{masked},{query.shape[-1]}]"


def unread(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Tensors that are handed over and not read: where `out=` has the result put, and what a product with `beta=0` does
    not add (cuBLAS: C need not be valid where beta is 0)."""
    if not kwargs:
        return []
    found = [kwargs[name] for name in _outs(func) if name in kwargs]
    if kwargs.get("beta", 1) == 0 and func._overloadpacket.__name__ in _ADDED:
        found.append(args[0])
    return found


@cache
def _outs(func: Any) -> tuple[str, ...]:
    return tuple(one.name for one in func._schema.arguments if one.is_out)
