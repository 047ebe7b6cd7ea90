"""Floating-point operations of one operator call, from torch's own formulas."""

from typing import Any

from torch.utils.flop_counter import flop_registry


def operator_flops(func: Any, args: tuple[Any, ...], out: Any) -> int:
    """FLOPs of `func(*args)`; 0 for operators whose time is memory traffic (torch.utils.flop_counter)."""
    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return 0
    return int(formula(*args, out_val=out))
