"""A sweep in the terminal: a heat map of how full the devices get, and a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from gpu_plan.planner.sweep.document import SweepDocument, SweepPoint
from gpu_plan.reports.clean import ascii_line, one_line
from gpu_plan.reports.sweep.words import (
    VERDICTS,
    WIDTH,
    fits,
    grids,
    header,
    labels,
    point_cells,
    reasons,
    share_used,
)

_STYLES = {"fits": "32", "tight": "33", "no": "31", "refused": "2"}
_SHADES, _ASCII_SHADES = "░▒▓█", ".:+#"
"""Up to a quarter, half, three quarters of the capacity, and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    width: int
    ascii_only: bool
    color: bool

    def clean(self, text: str) -> str:
        return ascii_line(text) if self.ascii_only else one_line(text)

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color and style else text


def render_sweep_text(
    document: SweepDocument, *, width: int = 100, ascii_only: bool = False, color: bool = False
) -> str:
    """Text that ends with a newline; the map where there are two or more axes, then a line for each point."""
    page = _Page(width=max(80, min(200, width)), ascii_only=ascii_only, color=color)
    lines: list[str] = []
    if len(document.axes) > 1:
        lines += _map(document, page)
    lines += _table(document, page)
    told = reasons(document)
    if told:
        lines += ["", page.styled("No plan", "1")]
        for values, reason in told:
            lines += _hanging(f"{page.clean(values)}: {page.clean(reason)}", page.width)
    if document.warnings:
        lines += ["", page.styled("Warnings", "1;33")]
        for warning in document.warnings:
            lines += _hanging(page.clean(warning), page.width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _map(document: SweepDocument, page: _Page) -> list[str]:
    """Share of the capacity in use, in figures and shades; words where there is no plan."""
    down, across = ([page.clean(label) for label in side] for side in labels(document))
    first = max(map(cell_len, down)) + 2
    each = max(12, max(map(cell_len, across)) + 2)
    lines: list[str] = []
    for caption, rows in grids(document):
        lines.append(page.styled(page.clean(f"Memory used, of capacity{', ' + caption if caption else ''}"), "1"))
        room = max(1, (page.width - first) // each)
        for start in range(0, len(across), room):
            lines.append(" " * first + "".join(_padded(label, each) for label in across[start : start + room]))
            for label, row in zip(down, rows, strict=True):
                cells = "".join(_cell(point, each, page) for point in row[start : start + room])
                lines.append(_padded(label, first) + cells)
        lines.append("")
    return lines


def _cell(point: SweepPoint, width: int, page: _Page) -> str:
    share = share_used(point)
    verdict = VERDICTS[point.verdict]
    if share is None:
        return page.styled(_padded(verdict, width), _STYLES[point.verdict])
    shades = _ASCII_SHADES if page.ascii_only else _SHADES
    shade = shades[min(3, int(share * 4))]
    word = "" if point.verdict == "fits" else f" {verdict}"
    return page.styled(_padded(f"{shade}{shade} {share:.0%}{word}", width), _STYLES[point.verdict])


def _table(document: SweepDocument, page: _Page) -> list[str]:
    names = tuple(page.clean(axis.name) for axis in document.axes)
    heads = (*names, "", *header(document))
    rows = [(*point.values, VERDICTS[point.verdict], *point_cells(point)) for point in document.points]
    cleaned = [tuple(page.clean(cell) for cell in row) for row in rows]
    widths = [max(cell_len(row[at]) for row in (heads, *cleaned)) for at in range(len(heads))]
    drop = _dropped(heads, widths, page.width)
    lines = [page.styled(_line(heads, widths, drop, len(names)), "2")]
    for point, row in zip(document.points, cleaned, strict=True):
        lines.append(page.styled(_line(row, widths, drop, len(names)), "" if fits(point) else "2"))
    return lines


def _dropped(heads: Sequence[str], widths: Sequence[int], page_width: int) -> set[int]:
    """Columns that a narrow page leaves out, the least telling first."""
    drop: set[int] = set()
    for name in ("step", heads[-WIDTH + 2], "batch", "free"):
        if sum(width + 2 for at, width in enumerate(widths) if at not in drop) - 2 <= page_width:
            break
        drop.add(heads.index(name, len(heads) - WIDTH))
    return drop


def _line(row: Sequence[str], widths: Sequence[int], drop: set[int], num_axes: int) -> str:
    figures = range(num_axes + 4, len(row))
    cells = [
        " " * (widths[at] - cell_len(cell)) + cell if at in figures or at < num_axes else _padded(cell, widths[at])
        for at, cell in enumerate(row)
        if at not in drop
    ]
    return "  ".join(cells)


def _padded(text: str, width: int) -> str:
    return text + " " * max(0, width - cell_len(text))


def _hanging(text: str, width: int) -> list[str]:
    """A dash and the text, its lines broken between words."""
    lines, current = [], "  -"
    for word in text.split(" "):
        if cell_len(current) + 1 + cell_len(word) > width and current.strip() != "-":
            lines.append(current)
            current = "   "
        current += f" {word}"
    return [*lines, current]
