"""Step times without what one source measured: every source of the speed model's tables left out in turn, and what it
says of a row's own device alone.

A row of a table that nothing else stands in for stays: another source's of the same table, and where a table is of
several things (`_APART`), of the same thing.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import StatisticsError
from typing import Any

from benchmarks.accuracy.speed.figures import Figures, Line, figures
from gpu_plan.planner.speed.collectives import collectives_data
from gpu_plan.planner.speed.rates import efficiency_data

_ROOM = "gpu_plan.planner.speed"
_APART = {"issuing": "kind", "intra": "link", "inter": "network", "first_flash": "what"}
"""What the rows of a table are of, where one does not stand in for another."""
_TOUCHED = 1e-3
"""Relative change of a time from which on a source is told to touch it."""
_NOT_TOLD = (StatisticsError, StopIteration, IndexError, KeyError, ValueError, ZeroDivisionError)
_OF = " of "
WITHOUT = "without"
"""Key of a scored row: by source, predicted seconds and both ends; empty where no time follows without it."""

_HEAD = """# Step times without one source

Written by `python -m benchmarks.accuracy.speed --sources`: each source of `planner/speed/efficiency.toml` and
`collectives.toml` left out in turn, and every row told by what is left; `SOURCE of DEVICE`: what it says of the row's
own device. Before the arrow with the source, behind it without, of the rows whose time or interval it changes by a part
in a thousand or more; the last column is of all rows. A row of a table stays where nothing else says what it says.
"""
Told = Sequence[float]
_Rows = list[dict[str, Any]]


def sources(device: str | None = None) -> tuple[str, ...]:
    """Every source of which at least one row can be left out, and with a device, by its name among the GPUs, those that
    speak of others too as `SOURCE of DEVICE`."""
    rows = [row for data in _tables() for table in data.values() for row in _rows_of(table)]
    named = sorted({row["source"] for row in rows})
    of_it = [
        one for one in named if {True, False} <= {row.get("gpu") == device for row in rows if row["source"] == one}
    ]
    every = [*named, *(f"{one}{_OF}{device}" for one in of_it if device)]
    return tuple(source for source in every if tables_of(source))


def tables_of(source: str) -> tuple[str, ...]:
    """Tables that lose rows with a source."""
    found = [
        name
        for data in _tables()
        for name, rows in data.items()
        if len(_kept(name, _rows_of(rows), source)) < len(_rows_of(rows))
    ]
    return tuple(found)


@contextmanager
def left_out(source: str) -> Iterator[None]:
    """The speed model's tables without a source; as they were afterwards."""
    before = [(data, name, rows) for data in _tables() for name, rows in data.items() if _rows_of(rows)]
    try:
        for data, name, rows in before:
            data[name] = _kept(name, rows, source)
        _forget()
        yield
    finally:
        for data, name, rows in before:
            data[name] = rows
        _forget()


def told_without(names: Sequence[str], told: Callable[[], Told]) -> dict[str, list[float]]:
    """What `told` says with each source left out; an empty list where nothing follows from the others."""
    found: dict[str, list[float]] = {}
    for name in names:
        with left_out(name):
            try:
                found[name] = list(told())
            except _NOT_TOLD:
                found[name] = []
    return found


def without_each(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """For each source: its tables, the rows that it touches, and their figures with it and without."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(source for line in lines for source in line.get(WITHOUT, {})):
        pairs = [(line, line[WITHOUT][name]) for line in lines if name in line.get(WITHOUT, {})]
        touched = [(line, told) for line, told in pairs if told and _moved(line, told)]
        if touched:
            found[name] = {
                "tables": ", ".join(tables_of(name)),
                "rows": len(touched),
                "with": figures([line for line, _ in touched]),
                "without": figures([_retold(line, told) for line, told in touched]),
                "all without": figures([_retold(line, line.get(WITHOUT, {}).get(name, ())) for line in lines]),
            }
    return found


def untold(lines: Sequence[Line]) -> dict[str, int]:
    """Sources without which the time of so many rows follows from nothing."""
    return dict(Counter(name for line in lines for name, told in line.get(WITHOUT, {}).items() if not told))


def idle(lines: Sequence[Line]) -> tuple[str, ...]:
    """Sources that touch no row."""
    every = dict.fromkeys(source for line in lines for source in line.get(WITHOUT, {}))
    touching = {*without_each(lines), *untold(lines)}
    return tuple(name for name in every if name not in touching and _OF not in name)


def page(lines: Sequence[Line]) -> str:
    """Markdown."""
    parts = [
        _HEAD,
        "| source | tables | rows | median | p90 | bias | inside | half-width | all rows: median, p90, inside |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    order = sorted(without_each(lines).items(), key=lambda item: -abs(_loss(item[1])))
    for name, one in order:
        cells = [name, one["tables"], str(one["rows"])]
        cells += [_pair(one["with"], one["without"], key) for key in ("median", "p90", "bias", "inside", "half_width")]
        every = one["all without"]
        cells.append(f"{every['median']:.1%}, {every['p90']:.1%}, {every['inside']:.1%}")
        parts.append(f"| {' | '.join(cells)} |")
    base = figures(lines)
    parts.append(f"\nAll rows with every source: {base['median']:.1%}, {base['p90']:.1%}, {base['inside']:.1%} inside.")
    missing = ", ".join(f"{name} ({count} rows)" for name, count in untold(lines).items())
    if missing:
        parts.append(f"\nTimes follow from nothing else without: {missing}.")
    names = idle(lines)
    if names:
        parts.append(f"\nNo row's time changes without: {', '.join(names)}.")
    alone = [name for name in _named() if name not in sources()]
    parts.append(f"\nNothing else says what these say: {', '.join(alone)}.")
    return "\n".join(parts) + "\n"


def _loss(one: Mapping[str, Any]) -> float:
    return float(one["without"]["median"] - one["with"]["median"])


def _pair(before: Figures, after: Figures, key: str) -> str:
    sign = "+" if key == "bias" else ""
    return f"{before[key]:{sign}.1%} → {after[key]:{sign}.1%}"


def _moved(line: Line, told: Told) -> bool:
    return any(
        abs(a - line[key]) > _TOUCHED * line[key] for a, key in zip(told, ("predicted", "low", "high"), strict=True)
    )


def _retold(line: Line, told: Told) -> Line:
    """The row by other times; as it is where there are none."""
    if not told:
        return line
    predicted, low, high = told
    return {
        **line,
        "predicted": predicted,
        "low": low,
        "high": high,
        "ratio": predicted / line["measured"],
        "inside": low <= line["measured"] <= high,
    }


def _tables() -> tuple[dict[str, Any], dict[str, Any]]:
    return efficiency_data(), collectives_data()


def _rows_of(rows: Any) -> _Rows:
    """The rows of a table; none of what is no table."""
    return rows if isinstance(rows, list) and all("source" in row for row in rows) else []


def _named() -> tuple[str, ...]:
    """Sources of rows, and of single figures."""
    names: dict[str, None] = {}
    for data in _tables():
        for name, rows in data.items():
            if isinstance(rows, dict) and name != "sources":
                names |= dict.fromkeys(str(value) for key, value in rows.items() if key.endswith("source"))
            names |= dict.fromkeys(str(row["source"]) for row in _rows_of(rows))
    return tuple(sorted(names))


def _kept(table: str, rows: _Rows, source: str) -> _Rows:
    """The rows without a source's, but for those that nothing stands in for."""
    apart = _APART.get(table)
    name, _, device = source.partition(_OF)

    def is_meant(row: Mapping[str, Any]) -> bool:
        return row["source"] == name and device in ("", row.get("gpu"))

    def stands(row: Mapping[str, Any]) -> bool:
        return any(not is_meant(other) and (apart is None or other.get(apart) == row.get(apart)) for other in rows)

    return [row for row in rows if not is_meant(row) or not stands(row)]


def _forget() -> None:
    """What was worked out of the tables; not what this room only looks up elsewhere, as GPUs."""
    for name, module in list(sys.modules.items()):
        if name == _ROOM or name.startswith(_ROOM + "."):
            for one in list(vars(module).values()):
                own = hasattr(one, "cache_clear") and one.__module__ == name
                if own and one not in (efficiency_data, collectives_data):
                    one.cache_clear()
