"""Units made ready for the solver: weightless ones join a neighbour, identical neighbours become one run."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.planner.search.device_map.problem import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A unit with weights, and the weightless ones that go where it goes."""

    names: tuple[str, ...]
    weight_bytes: int
    """What streams when it is offloaded."""
    stored_bytes: int
    """What it adds where it is placed: less than the weights when an earlier item holds a tied tensor of it."""
    kept_bytes: int
    workspace_bytes: int
    stream_bytes: int
    tie: int | None
    """Items with the same number share tensors and hence a device."""

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for items that the solver may exchange."""
        alone = None if self.tie is None else self.names
        return (self.weight_bytes, self.stored_bytes, self.kept_bytes, self.workspace_bytes, self.stream_bytes, alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Identical items; `order` of their positions is execution order."""

    item: Item
    positions: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.positions)


def items_of(units: Sequence[Unit]) -> tuple[Item, ...]:
    """Items in execution order. A weightless unit follows the unit before it (the first: the one after)."""
    groups: list[list[Unit]] = []
    waiting: list[Unit] = []
    for unit in units:
        if unit.weight_bytes or (not groups and unit is units[-1]):
            groups.append([*waiting, unit])
            waiting = []
        elif groups:
            groups[-1].append(unit)
        else:
            waiting.append(unit)
    tied = _components(groups)
    seen: set[str] = set()
    items = []
    for index, group in enumerate(groups):
        stored = sum(unit.weight_bytes for unit in group)
        for tie in (tie for unit in group for tie in unit.ties):
            if tie.group in seen:
                stored -= tie.num_bytes
            seen.add(tie.group)
        items.append(
            Item(
                names=tuple(unit.name for unit in group),
                weight_bytes=sum(unit.weight_bytes for unit in group),
                stored_bytes=stored,
                kept_bytes=sum(unit.state_bytes + unit.buffer_bytes for unit in group),
                workspace_bytes=max(unit.workspace_bytes for unit in group),
                stream_bytes=max(unit.headroom_bytes - unit.workspace_bytes for unit in group),
                tie=tied.get(index),
            )
        )
    return tuple(items)


def _components(groups: Sequence[Sequence[Unit]]) -> dict[int, int]:
    """Group index to the lowest index that it is tied with, directly or through others."""
    root = list(range(len(groups)))

    def find(index: int) -> int:
        while root[index] != index:
            index = root[index]
        return index

    holders: dict[str, int] = {}
    for index, group in enumerate(groups):
        for tie in (tie for unit in group for tie in unit.ties):
            other = holders.setdefault(tie.group, index)
            low, high = sorted((find(index), find(other)))
            root[high] = low
    sizes: dict[int, int] = {}
    for index in range(len(groups)):
        sizes[find(index)] = sizes.get(find(index), 0) + 1
    return {index: find(index) for index in range(len(groups)) if sizes[find(index)] > 1}


def runs_of(items: Sequence[Item]) -> tuple[Run, ...]:
    """Runs of identical neighbours, in execution order."""
    runs: list[list[int]] = []
    for position, item in enumerate(items):
        if runs and items[runs[-1][0]].kind == item.kind:
            runs[-1].append(position)
        else:
            runs.append([position])
    return tuple(Run(item=items[positions[0]], positions=tuple(positions)) for positions in runs)


def kinds_of(items: Sequence[Item]) -> tuple[Run, ...]:
    """Identical items wherever they stand: all that matters while order does not."""
    found: dict[tuple[object, ...], list[int]] = {}
    for position, item in enumerate(items):
        found.setdefault(item.kind, []).append(position)
    return tuple(Run(item=items[positions[0]], positions=tuple(positions)) for positions in found.values())
