"""Which tensors a growth comes from. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from gpu_plan.planner.regression.baseline import OTHERS, Standing

_OPERATORS = 3
"""How many are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """Bytes at the peak that one kind of tensor takes more, or less, than before."""

    standing: Standing
    change: int
    line: int | None = None
    """Of the file that `standing` names, now."""


def culprits(before: Mapping[str, int], after: Mapping[str, int], lines: Mapping[str, int]) -> tuple[Culprit, ...]:
    """What changed, the largest change first.

    What was only moved or renamed nets out: bytes that went under one name and came under another of the same
    category and operator are the same tensors.
    """
    changes = {
        key: after.get(key, 0) - before.get(key, 0)
        for key in dict.fromkeys((*after, *before))
        if key != OTHERS and after.get(key, 0) != before.get(key, 0)
    }
    for alike in (_same_module, _same_line, _same_operator):
        _net(changes, alike)
    groups: dict[tuple[str, ...], list[str]] = {}
    for key, change in changes.items():
        if change:
            groups.setdefault((str(change > 0), *_shown_together(Standing.of_key(key))), []).append(key)
    found = [_merged(_ordered(keys, changes), changes, lines) for keys in groups.values()]
    return tuple(sorted(found, key=lambda culprit: (-abs(culprit.change), culprit.standing.key())))


def _shown_together(standing: Standing) -> tuple[str, ...]:
    """What one line made, or else one module."""
    if standing.text:
        return standing.category, standing.file, standing.text
    return standing.category, standing.module


def _merged(keys: list[str], changes: Mapping[str, int], lines: Mapping[str, int]) -> Culprit:
    """Tensors of one line as one, under the module of the largest and the operators of all."""
    all_of = [Standing.of_key(key) for key in keys]
    operators = list(dict.fromkeys(standing.operator for standing in all_of if standing.operator))
    named = ", ".join(operators[:_OPERATORS]) + (", ..." if len(operators) > _OPERATORS else "")
    return Culprit(
        standing=replace(all_of[0], operator=named),
        change=sum(changes[key] for key in keys),
        line=next((lines[key] for key in keys if key in lines), None),
    )


def _net(changes: dict[str, int], alike: Callable[[Standing], tuple[str, ...] | None]) -> None:
    """Cancels what left against what came among tensors that are alike, the largest first, in place."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for key, change in changes.items():
        group = alike(Standing.of_key(key))
        if change and group is not None:
            groups.setdefault(group, []).append(key)
    for keys in groups.values():
        came = _ordered((key for key in keys if changes[key] > 0), changes)
        gone = _ordered((key for key in keys if changes[key] < 0), changes)
        for arrived in came:
            for left in gone:
                moved = min(changes[arrived], -changes[left])
                changes[arrived] -= moved
                changes[left] += moved


def _ordered(keys: Iterable[str], changes: Mapping[str, int]) -> list[str]:
    return sorted(keys, key=lambda key: (-abs(changes[key]), key))


def _same_module(standing: Standing) -> tuple[str, ...]:
    """A line that was rewritten."""
    return standing.category, standing.module, standing.operator, standing.file


def _same_line(standing: Standing) -> tuple[str, ...] | None:
    """A module that was renamed."""
    return (standing.category, standing.operator, standing.file, standing.text) if standing.text else None


def _same_operator(standing: Standing) -> tuple[str, ...]:
    """Both."""
    return standing.category, standing.operator
