"""What an operator's schema says, asked once: torch builds it anew at each question."""

from typing import Any

import torch

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.inputs.known import asks_values
from gpu_plan.planner.trace.recording.host_reads import READS
from gpu_plan.planner.trace.recording.operators.engine_adds import IN_PLACE_ON_DEVICE

_SAVING = frozenset(("mm", "addmm", "bmm", "baddbmm", "mul", "div", "convolution", "_grouped_mm"))
"""Operators that keep what they read for backward."""
_COLLECTIVES = "c10d"
"""Namespace of operators that write what they are given, though their schemas do not say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Of one operator."""

    name: str
    functional: bool
    """Whether nothing is written and no result shares an argument's storage."""
    silent: bool
    """Whether it launches nothing where it makes nothing: a view."""
    may_write_in_place: bool
    saves: bool
    asks: bool
    """Whether it may read a value, or make a shape of one."""


_known: dict[int, tuple[Any, Facts]] = {}
"""By the operator's address, which its entry keeps: operators hash in Python."""


def facts_of(func: Any) -> Facts:
    """Facts of an operator."""
    found = _known.get(id(func))
    if found is None:
        found = _known[id(func)] = (func, _facts(func))
    return found[1]


def _facts(func: Any) -> Facts:
    schema, name = func._schema, func._overloadpacket.__name__
    return Facts(
        name=name,
        functional=func.namespace == "aten"
        and not schema.is_mutable
        and bool(schema.returns)
        and all(result.alias_info is None and str(result.type) == "Tensor" for result in schema.returns),
        silent=not schema.is_mutable and func.namespace != _COLLECTIVES,
        may_write_in_place=name in IN_PLACE_ON_DEVICE,
        saves=name in _SAVING,
        asks=func in READS or asks_values(func),
    )


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Tensors among arguments or results, lists of them gone through."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += tensors_in(value)
    return found
