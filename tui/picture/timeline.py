"""A step's memory over time as lines of cells, phases under it, the peak marked. Pure."""

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from gpu_plan.reports.plan.words import gib
from gpu_plan.tui.engine.messages import Columns
from gpu_plan.tui.picture.palette import BAD, COLOURS, LETTERS

_EIGHTHS = " ▁▂▃▄▅▆▇█"
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
    lines = [_row(columns, levels, row, rows, top, limit, letters) for row in range(rows - 1, -1, -1)]
    return Text("\n").join([_mark(columns, at, ascii_only), *lines, _axis(columns, at)])


def _chosen(columns: Columns, cells: int) -> list[int]:
    """As many columns as there are cells: of those that share one the highest, the peak always."""
    count = len(columns.levels)
    found = []
    for cell in range(cells):
        first, last = cell * count // cells, max(cell * count // cells + 1, (cell + 1) * count // cells)
        found.append(max(range(first, last), key=lambda at: (at == columns.peak, sum(columns.levels[at]))))
    return found


def _row(
    columns: Columns,
    levels: Sequence[Sequence[int]],
    row: int,
    rows: int,
    top: int,
    limit: int | None,
    letters: bool,
) -> Text:
    cells: list[tuple[str, str]] = []
    low, high = row * top / rows, (row + 1) * top / rows
    for level in levels:
        total = sum(level)
        if total <= low:
            at_limit = limit is not None and row == min(limit, rows) - 1
            cells.append(("-" if at_limit and letters else "╌" if at_limit else " ", f"{BAD} dim" if at_limit else ""))
            continue
        fill = min(total, high)
        key = _category_at(columns.categories, level, (low + fill) / 2)
        if letters:
            cells.append((LETTERS.get(key, "o"), ""))
        else:
            eighth = max(1, min(8, round((fill - low) / (high - low) * 8)))
            cells.append((_EIGHTHS[eighth], COLOURS.get(key, "#888888")))
    # Few pieces of one style each are drawn far sooner than as many as there are cells.
    text = Text(" ")
    for style, run in groupby(cells, key=lambda cell: cell[1]):
        text.append("".join(character for character, _ in run), style=style)
    return text


def _category_at(categories: Sequence[str], level: Sequence[int], height: float) -> str:
    standing = 0
    for key, size in zip(categories, level, strict=True):
        standing += size
        if standing >= height and size:
            return key
    return categories[-1]


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
