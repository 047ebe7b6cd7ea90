"""From counts per run to a map, and the crossings that an arrangement has."""

from collections.abc import Mapping, Sequence

from gpu_plan.planner.search.device_map.items import Item, Run
from gpu_plan.planner.search.device_map.problem import DeviceName
from gpu_plan.planner.search.device_map.solver.model import Mode

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


_BEAM = 100
"""Partial arrangements kept per position."""


def arranged_map(items: Sequence[Item], kinds: Sequence[Run], counts: Counts, mode: Mode) -> dict[str, DeviceName]:
    """A map with exactly these counts per kind and few crossings: a beam search over the items in order.

    What runs on one device is one group; within a group the device's own places are used up first.
    """
    kind_of = [0] * len(items)
    for index, kind in enumerate(kinds):
        for position in kind.positions:
            kind_of[position] = index
    groups = _groups(counts, mode)
    left = tuple(tuple(sum(count.get(place, 0) for place in group) for group in groups) for count in counts)
    paths: dict[tuple[int, _Left], tuple[int, _Path]] = {(-1, left): (0, None)}
    for position in range(len(items)):
        following: dict[tuple[int, _Left], tuple[int, _Path]] = {}
        for (current, remaining), (crossings, path) in paths.items():
            row = remaining[kind_of[position]]
            for group, count in enumerate(row):
                if not count:
                    continue
                rest = (*row[:group], count - 1, *row[group + 1 :])
                state = (*remaining[: kind_of[position]], rest, *remaining[kind_of[position] + 1 :])
                total = crossings + (current not in (-1, group))
                if total < following.get((group, state), (len(items) + 1, None))[0]:
                    following[group, state] = (total, (group, path))
        best = sorted(following.items(), key=lambda entry: entry[1][0])[:_BEAM]
        paths = dict(best)
    _, path = min(paths.values(), key=lambda entry: entry[0])
    return _named_path(items, kind_of, counts, groups, path)


_Left = tuple[tuple[int, ...], ...]
_Path = tuple[int, "_Path"] | None


def _groups(counts: Counts, mode: Mode) -> list[tuple[DeviceName, ...]]:
    """Places by the device that runs what stands there."""
    stores = tuple(store.name for store in mode.storing)
    return [(device.name, *stores) if device.name == mode.main else (device.name,) for device in mode.running]


def stretched_map(
    items: Sequence[Item], kinds: Sequence[Run], counts: Counts, mode: Mode, devices: Sequence[DeviceName]
) -> dict[str, DeviceName]:
    """The map in which `devices[i]` runs item i, and what the main device runs stands where `counts` says."""
    kind_of = [0] * len(items)
    for index, kind in enumerate(kinds):
        for position in kind.positions:
            kind_of[position] = index
    groups = _groups(counts, mode)
    of_device = {group[0]: index for index, group in enumerate(groups)}
    path: _Path = None
    for device in devices:
        path = (of_device[device], path)
    return _named_path(items, kind_of, counts, groups, path)


def _named_path(
    items: Sequence[Item],
    kind_of: Sequence[int],
    counts: Counts,
    groups: Sequence[tuple[DeviceName, ...]],
    path: "_Path",
) -> dict[str, DeviceName]:
    chosen: list[int] = []
    while path is not None:
        chosen.append(path[0])
        path = path[1]
    left = [dict(count) for count in counts]
    where: dict[str, DeviceName] = {}
    for position, group in enumerate(reversed(chosen)):
        row = left[kind_of[position]]
        place = next(place for place in groups[group] if row.get(place, 0))
        row[place] -= 1
        where |= dict.fromkeys(items[position].names, place)
    return where
