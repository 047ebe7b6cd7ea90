"""From counts per run to a map, and the crossings that an arrangement has."""

from collections.abc import Mapping, Sequence

from planner.search.device_map.items import Item, Run
from planner.search.device_map.model import Mode
from planner.search.device_map.problem import DeviceName

Counts = Sequence[Mapping[DeviceName, int]]


def map_of_counts(
    items: Sequence[Item], runs: Sequence[Run], counts: Counts, mode: Mode, entries: Sequence[DeviceName | None]
) -> dict[str, DeviceName]:
    """Places the items of every run in blocks per running device, the block of `entries[run]` first.

    The last block of a run is the one that the next run enters on, where the run has it and it is not its first.
    """
    where: dict[str, DeviceName] = {}
    for index, run in enumerate(runs):
        following = entries[index + 1] if index + 1 < len(entries) else None
        positions = iter(run.positions)
        for place in _blocks(counts[index], mode, entries[index], following):
            for _ in range(counts[index][place]):
                where |= dict.fromkeys(items[next(positions)].names, place)
    return {name: where[name] for item in items for name in item.names}


def _blocks(
    counts: Mapping[DeviceName, int], mode: Mode, first: DeviceName | None, last: DeviceName | None
) -> list[DeviceName]:
    """Places of one run in order; what the main device runs from elsewhere stands beside its own items."""
    blocks: dict[DeviceName, list[DeviceName]] = {}
    for place, count in counts.items():
        if count:
            runs_on = mode.main if any(store.name == place for store in mode.storing) else place
            blocks.setdefault(place if runs_on is None else runs_on, []).append(place)
    order = sorted(blocks, key=lambda name: (name != first, name == last and name != first))
    return [place for name in order for place in blocks[name]]


def greedy_map(items: Sequence[Item], kinds: Sequence[Run], counts: Counts, mode: Mode) -> dict[str, DeviceName]:
    """A map that uses exactly these counts per kind and stays on a device as long as it can: a first answer."""
    kind_of = {position: index for index, kind in enumerate(kinds) for position in kind.positions}
    left = [dict(count) for count in counts]
    stores = {store.name for store in mode.storing}
    where: dict[str, DeviceName] = {}
    current: DeviceName | None = None
    for position, item in enumerate(items):
        choices = [place for place, count in left[kind_of[position]].items() if count]
        reach = {
            place: _reach(position, len(items), kind_of, left, _group(place, stores, mode.main, left, kind_of))
            for place in choices
        }
        place = max(choices, key=lambda p: ((mode.main if p in stores else p) == current, reach[p], p not in stores))
        current = mode.main if place in stores else place
        left[kind_of[position]][place] -= 1
        where |= dict.fromkeys(item.names, place)
    return where


def _group(
    place: DeviceName,
    stores: set[DeviceName],
    main: DeviceName | None,
    left: Sequence[Mapping[DeviceName, int]],
    kind_of: Mapping[int, int],
) -> set[DeviceName]:
    """Places that run on the same device as `place`."""
    return {main, *stores} if main is not None and (place in stores or place == main) else {place}


def _reach(
    start: int, end: int, kind_of: Mapping[int, int], left: Sequence[Mapping[DeviceName, int]], group: set[DeviceName]
) -> int:
    """How many items from `start` on could stay on this running device."""
    taken: dict[int, int] = {}
    for position in range(start, end):
        kind = kind_of[position]
        taken[kind] = taken.get(kind, 0) + 1
        if taken[kind] > sum(left[kind].get(place, 0) for place in group):
            return position - start
    return end - start
