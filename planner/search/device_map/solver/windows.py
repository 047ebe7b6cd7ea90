"""Orders in which every GPU but the main one runs one stretch of neighbouring items.

Counts say how many items of each kind a device holds; where kinds alternate, counts alone scatter a model. Here the
stretches are chosen first, so that they fill their devices best, and the program decides only what the main device
keeps. Whether its answer is as good in the first goals is seen afterwards: a heuristic, whose result is judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from gpu_plan.planner.search.device_map.items import Item
from gpu_plan.planner.search.device_map.problem import Device, DeviceName
from gpu_plan.planner.search.device_map.solver.model import Mode

_SHORTER = 3
"""How many items less than the most a stretch may have."""
_KEPT = 24
"""Best fillings kept per state; a third of that for three devices and more."""
_MAIN_STRETCHES = 3
_WAYS = 12
"""Most sets of devices taken that are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """A device for every item: neighbours in stretches."""

    devices: tuple[DeviceName, ...]
    """By item: the device that runs it."""

    @property
    def crossings(self) -> int:
        return sum(a != b for a, b in zip(self.devices, self.devices[1:], strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    used: tuple[int, ...]
    """Devices taken, by kind."""
    main: int
    """Stretches of the main device so far."""
    in_main: bool


_Choice = tuple[int, tuple[DeviceName, int], "_Choice"] | None
_Found = tuple[int, _Choice]


def stretches(items: Sequence[Item], mode: Mode) -> list[Stretches]:
    """Candidates, fewest crossings first, then fullest devices. Empty where nothing of this shape exists."""
    main = mode.main
    kinds = _kinds([device for device in mode.running if device.name != main])
    keep = _KEPT if len(mode.running) < 3 else _KEPT // 3
    if main is None and any(item.tie is not None for item in items):
        return []  # tied items must meet on one device, and here each device has one stretch
    states: list[dict[_State, list[_Found]]] = [{} for _ in range(len(items) + 1)]
    start = _State(used=tuple(0 for _ in kinds), main=0, in_main=False)
    states[0][start] = [(0, None)]
    for position in range(len(items)):
        for state, found in states[position].items():
            for end, following, choice, filled in _steps(items, position, state, kinds, main):
                kept = states[end].setdefault(following, [])
                kept += [(value + filled, (position, choice, path)) for value, path in found]
                kept.sort(key=lambda entry: -entry[0])
                del kept[keep:]
    made = [(value, _devices(path, len(items))) for found in states[-1].values() for value, path in found]
    made.sort(key=lambda entry: (entry[1].crossings, -entry[0]))
    return [candidate for _, candidate in made]


def _kinds(devices: Sequence[Device]) -> list[list[Device]]:
    """Devices that may be exchanged, grouped; all in one group, hence in this order, where there are many kinds."""
    groups: dict[object, list[Device]] = {}
    for device in devices:
        groups.setdefault(replace(device, name=""), []).append(device)
    ways = prod(len(group) + 1 for group in groups.values())
    return list(groups.values()) if ways <= _WAYS else [list(devices)]


def _steps(
    items: Sequence[Item], position: int, state: _State, kinds: Sequence[Sequence[Device]], main: DeviceName | None
) -> Iterator[tuple[int, _State, tuple[DeviceName, int], int]]:
    """(where the stretch ends, state there, (device, items), bytes off the main device)."""
    if main is not None and (state.in_main or state.main < _MAIN_STRETCHES):
        following = replace(state, main=state.main + (not state.in_main), in_main=True)
        yield position + 1, following, (main, 1), 0
    for index, group in enumerate(kinds):
        if state.used[index] == len(group):
            continue
        device = group[state.used[index]]
        used = (*state.used[:index], state.used[index] + 1, *state.used[index + 1 :])
        for count, filled in _fillings(items, position, device, keep_ties=main is not None):
            following = replace(state, used=used, in_main=False)
            yield position + count, following, (device.name, count), filled


def _fillings(items: Sequence[Item], position: int, device: Device, *, keep_ties: bool) -> list[tuple[int, int]]:
    """(items, bytes) of the longest stretches from `position` that `device` holds."""
    room = float("inf") if device.free_bytes is None else device.free_bytes
    size = workspace = 0
    lengths: list[tuple[int, int]] = []
    for count, item in enumerate(items[position:], start=1):
        size += item.stored_bytes + item.kept_bytes
        workspace = max(workspace, item.workspace_bytes)
        if size + workspace > room or (keep_ties and item.tie is not None):
            break
        lengths.append((count, size))
    return lengths[-_SHORTER:]


def _devices(path: _Choice, count: int) -> Stretches:
    devices: list[DeviceName] = [""] * count
    while path is not None:
        position, (name, length), path = path
        devices[position : position + length] = [name] * length
    return Stretches(devices=tuple(devices))
