"""A step's memory over time as lines of cells, phases under it, the peak marked. Pure.

A cell has two colours, one over the other, so that a column has twice as many places as lines; each category that
stands in it gets one at least, as long as there are as many places.
"""

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from gpu_plan.reports.plan.words import gib
from gpu_plan.tui.engine.messages import Columns
from gpu_plan.tui.picture.palette import BAD, COLOURS, LETTERS

_LOWER, _FULL = "▄", "█"
_GREY = "#888888"
_IN_VIEW = 1.6
"""The capacity is drawn where it is no higher than this many times the peak."""


def timeline_text(
    columns: Columns, width: int, height: int, *, capacity: int, letters: bool = False, ascii_only: bool = False
) -> Text:
    """`height` lines: the mark of the peak, the stack, the phases. `capacity` is what the allocator may take."""
    rows, cells = max(1, height - 2), max(8, width - 2)
    at = _chosen(columns, cells)
    levels = [columns.levels[index] for index in at]
    highest = max(max(map(sum, levels)), 1)
    top = capacity if highest < capacity <= _IN_VIEW * highest else highest
    limit = round(capacity * rows / top) if capacity < top or top == capacity else None
    places = rows if letters else 2 * rows
    stacks = [stacked(columns.categories, level, places, top) for level in levels]
    lines = [_row(stacks, row, None if limit is None else min(limit, rows) - 1, letters) for row in range(rows)]
    return Text("\n").join([_mark(columns, at, ascii_only), *reversed(lines), _axis(columns, at)])


def stacked(categories: Sequence[str], level: Sequence[int], places: int, top: int) -> list[str]:
    """What stands in each place of a column, lowest first; `places` are as high as `top` bytes."""
    total = sum(level)
    filled = min(places, max(1, round(total * places / top))) if total else 0
    present = [at for at, size in enumerate(level) if size]
    if len(present) > filled:
        present = sorted(sorted(present, key=lambda at: -level[at])[:filled])
    exact = {at: level[at] * filled / total for at in present}
    given = {at: max(1, int(exact[at])) for at in present}
    while sum(given.values()) > filled:
        given[max((at for at in present if given[at] > 1), key=lambda at: given[at] - exact[at])] -= 1
    while sum(given.values()) < filled:
        given[max(present, key=lambda at: exact[at] - given[at])] += 1
    return [categories[at] for at in present for _ in range(given[at])]


def _chosen(columns: Columns, cells: int) -> list[int]:
    """As many columns as there are cells: of those that share one the highest, the peak always."""
    count = len(columns.levels)
    found = []
    for cell in range(cells):
        first, last = cell * count // cells, max(cell * count // cells + 1, (cell + 1) * count // cells)
        found.append(max(range(first, last), key=lambda at: (at == columns.peak, sum(columns.levels[at]))))
    return found


def _row(stacks: Sequence[Sequence[str]], row: int, limit: int | None, letters: bool) -> Text:
    """One line, the lowest being 0; `limit` is the one at which the capacity lies."""
    each = 1 if letters else 2
    cells: list[tuple[str, str]] = []
    for stack in stacks:
        here = stack[row * each : (row + 1) * each]
        if not here:
            mark = "-" if letters else "╌"
            cells.append((mark, f"{BAD} dim") if row == limit else (" ", ""))
        elif letters:
            cells.append((LETTERS.get(here[0], "o"), ""))
        else:
            low, high = COLOURS.get(here[0], _GREY), COLOURS.get(here[-1], _GREY)
            cells.append(
                (_FULL if low == high and len(here) == 2 else _LOWER, low if low == high else f"{low} on {high}")
            )
    # Few pieces of one style each are drawn far sooner than as many as there are cells.
    text = Text(" ")
    for style, run in groupby(cells, key=lambda cell: cell[1]):
        text.append("".join(character for character, _ in run), style=style)
    return text


def _mark(columns: Columns, at: Sequence[int], ascii_only: bool) -> Text:
    """Where the peak is, and how high."""
    cell = max(range(len(at)), key=lambda index: at[index] == columns.peak)
    words = f"peak {gib(sum(columns.levels[columns.peak]))} GiB in {columns.phases[columns.peak]}"
    point = "v" if ascii_only else "▼"
    if cell + len(words) + 2 <= len(at):
        return Text(" " * (cell + 1) + f"{point} {words}", style="bold")
    return Text(" " * max(1, cell - len(words)) + f"{words} {point}", style="bold")


def _axis(columns: Columns, at: Sequence[int]) -> Text:
    """Phases by name where they begin."""
    cells = [" "] * len(at)
    phases = [columns.phases[index] for index in at]
    starts = [0, *(cell for cell in range(1, len(at)) if phases[cell] != phases[cell - 1])]
    for start, behind in zip(starts, [*starts[1:], len(at)], strict=True):
        name = ("|" if start else "") + phases[start].replace("_", " ")
        for offset, character in enumerate(name[: behind - start]):
            cells[start + offset] = character
    return Text(" " + "".join(cells), style="dim")
