"""What installed versions have changed of that which is mirrored here, and which figures rest on the older source."""

import tomllib
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from gpu_plan.planner.cache_dir import installed
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.upstream.sources import source_of
from gpu_plan.planner.upstream.table import Held, held, held_versions

_AREAS = Path(__file__).with_name("areas.toml")
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Moved:
    """One project of which another version is installed than the one that was read."""

    project: str
    read: str
    installed: str
    parts: tuple[Held, ...]
    """Rows of the table whose symbols are gone or say something else."""
    held: int
    """How many of its symbols the table holds."""


def other_versions() -> dict[str, str]:
    """Project -> installed version, where it is not the version that was read; absent projects are left out."""
    read = held_versions()
    found = {name: version.partition("+")[0] for name, version in installed(read).items()}
    return {name: version for name, version in found.items() if version != read[name]}


def moved_parts(rows: Collection[Held]) -> list[Held]:
    """Those of `rows` that have a digest and whose installed source has another one, or none. Imports nothing."""
    inside: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        inside[row.file].add(row.symbol)
    return [row for row in rows if row.digest and _digest(row, inside[row.file]) != row.digest]


def _digest(row: Held, symbols: Collection[str]) -> str | None:
    source = source_of(row.file)
    return source.digest(row.symbol, symbols) if source else None


def moved_line() -> str | None:
    """One line on all projects of other versions, None where every version is the one that was read."""
    others = other_versions()
    if not others:
        return None
    rows = held()
    return line([_moved(name, version, rows) for name, version in others.items()])


def _moved(name: str, version: str, rows: Collection[Held]) -> Moved:
    own = [row for row in rows if row.project == name]
    read = next(row.version for row in own)
    count = sum(bool(row.digest) for row in own)
    return Moved(name, read, version, tuple(moved_parts(own)), count)


def line(moved: Collection[Moved]) -> str:
    """`moved` as one line: versions, what differs, and the figures that rest on the older source."""
    said = [
        f"{one.project} {one.installed} (read: {one.read}, {len(one.parts)} of {one.held} parts differ)"
        for one in moved
    ]
    parts = [part for one in moved for part in one.parts]
    text = f"other versions are installed than those whose source is mirrored: {', '.join(said)}"
    if not parts:
        return f"{text}; every mirrored part says the same"
    named = ", ".join(_name(part) for part in parts[:_MOST_NAMED])
    more = f" and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    return f"{text}; {named}{more}; on the older source rest: {', '.join(areas(parts))}"


def _name(part: Held) -> str:
    return f"{part.file}: {part.symbol}" if part.symbol else part.file


def areas(parts: Collection[Held]) -> list[str]:
    """The figures that rest on `parts`, in words, sorted."""
    words = tomllib.loads(_AREAS.read_text(encoding="utf-8"))
    return sorted({area_of(module, words) for part in parts for module in part.used_by.split()})


def area_of(module: str, words: Mapping[str, str]) -> str:
    """What a module's figures are called. KeyError for a module that no beginning covers."""
    return words[max((start for start in words if module.startswith(start)), key=len, default=module)]
