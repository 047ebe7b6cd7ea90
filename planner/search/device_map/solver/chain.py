"""Nothing offloaded, devices all alike: each runs one stretch of neighbours, and that can be proved without a program.

A map with c crossings is c + 1 stretches, each on one device, so that the fewest stretches that fit say the fewest
crossings; cut as late as they may be, they are the fewest. The least share of the fullest device is the least at which
no more stretches are needed. Where cutting as early as can be gives the same, no other map is as good.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from gpu_plan.planner.search.device_map.items import Item
from gpu_plan.planner.search.device_map.placement import SHARE_STEPS
from gpu_plan.planner.search.device_map.problem import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Stretches of items over devices that are alike."""

    crossings: int
    """No map has fewer."""
    steps: int
    """No map with so few has a fullest device of a lower share, in `SHARE_STEPS`."""
    ends: tuple[int, ...]
    """Behind each stretch's last item."""
    only: bool
    """Whether every other map is worse."""


def chain_of(items: Sequence[Item], devices: Sequence[Device]) -> Chain | None:
    """None where devices differ, tensors are tied over items, or some offload is needed."""
    free = devices[0].free_bytes
    alike = len({replace(device, name="") for device in devices}) == 1
    if not free or not alike or any(item.tie is not None for item in items):
        return None
    fewest = _ends(items, free)
    if fewest is None or len(fewest) > len(devices):
        return None
    low, high = 0, SHARE_STEPS
    while high - low > 1:
        tried = _ends(items, free * (middle := (low + high) // 2) // SHARE_STEPS)
        low, high = (low, middle) if tried is not None and len(tried) == len(fewest) else (middle, high)
    most = free * high // SHARE_STEPS
    late = _ends(items, most)
    assert late is not None
    only = late == _early(items, most) and not _joined(items, late, most)
    return Chain(crossings=len(fewest) - 1, steps=high, ends=late, only=only)


def _ends(items: Sequence[Item], room: int) -> tuple[int, ...] | None:
    """Where stretches end that are each as long as `room` allows; None where an item alone is larger."""
    ends: list[int] = []
    size = workspace = 0
    for position, item in enumerate(items):
        held, needed = item.stored_bytes + item.kept_bytes, max(workspace, item.workspace_bytes)
        if size + held + needed > room:
            if held + item.workspace_bytes > room:
                return None
            ends.append(position)
            size, needed = 0, item.workspace_bytes
        size, workspace = size + held, needed
    return (*ends, len(items))


def _early(items: Sequence[Item], room: int) -> tuple[int, ...]:
    """The same from the other end."""
    ends = _ends(items[::-1], room)
    assert ends is not None
    return (*(len(items) - end for end in ends[-2::-1]), len(items))


def _joined(items: Sequence[Item], ends: Sequence[int], room: int) -> bool:
    """Whether a device could run two of the stretches."""
    stretches = [items[first:end] for first, end in zip((0, *ends[:-1]), ends, strict=True)]
    return any(_size([*one, *other]) <= room for one, other in combinations(stretches, 2))


def _size(items: Sequence[Item]) -> int:
    held = sum(item.stored_bytes + item.kept_bytes for item in items)
    return held + max(item.workspace_bytes for item in items)
