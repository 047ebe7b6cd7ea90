"""The timeline of a step as a file: SVG to look at, CSV to compute with.   I/O"""

import csv
import io
import os
from collections.abc import Sequence
from xml.sax.saxutils import escape

from planner.errors import UsageError
from planner.plan_io import write_text
from planner.plan_timeline import Timeline
from planner.units import GIB, format_bytes
from reports.clean import one_line

ENDINGS = (".svg", ".csv")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 1200, 640, 70, 230, 60, 60
_COLUMNS = 1000
"""Most points across: of those that share one, the highest is drawn."""
_COLOURS = {
    "parameters": "#4e79a7", "gradients": "#f28e2b", "optimizer_state": "#76b7b2", "activations": "#e15759",
    "temporary": "#edc948", "communication": "#b07aa1", "buffers": "#9c755f", "inputs": "#59a14f",
    "kv_cache": "#bab0ac",
}  # fmt: skip


def check_ending(path: str) -> None:
    """UsageError for a file that is neither SVG nor CSV."""
    if not path.lower().endswith(ENDINGS):
        raise UsageError(f"--plot {path}: name a file that ends in .svg (a picture) or .csv (every event)")


def write_timeline(timeline: Timeline, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Writes what the file's ending says, whole or not at all."""
    text = as_csv(timeline) if os.fspath(path).lower().endswith(".csv") else as_svg(timeline)
    write_text(path, text, force=force)


def as_csv(timeline: Timeline) -> str:
    """One line for each event of the step; bytes, and what stands by category after it."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ("event", "phase", "category", "module", "operator", "change", "allocated", "reserved")
    writer.writerow((*head, *timeline.start, "is_peak"))
    for number, (moment, levels) in enumerate(zip(timeline.moments, _levels(timeline), strict=True)):
        named = (moment.phase, moment.category, moment.module, moment.operator)
        figures = (moment.change, moment.allocated, moment.reserved)
        writer.writerow((number, *map(one_line, named), *figures, *levels, int(number == timeline.peak)))
    return stream.getvalue()


def _levels(timeline: Timeline) -> list[tuple[int, ...]]:
    """Bytes by category after each event."""
    standing = dict(timeline.start)
    levels = []
    for moment in timeline.moments:
        standing[moment.category] += moment.change
        levels.append(tuple(standing.values()))
    return levels


def as_svg(timeline: Timeline) -> str:
    """Categories stacked over the step, reserved memory as a line, the peak marked with what makes it up."""
    levels = _levels(timeline)
    shown = _shown(timeline)
    top = 1.08 * max([timeline.moments[at].reserved for at in shown] + [sum(levels[at]) for at in shown] + [1])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        ' font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 28, timeline.title, size=16),
        _text(_LEFT, 46, f"iteration {timeline.iteration}, {len(timeline.moments):,} allocations and frees in order"),
        *_axis(top),
        *_areas(timeline, levels, shown, top),
        _line([(index, timeline.moments[at].reserved) for index, at in enumerate(shown)], len(shown), top),
        *_phases(timeline, shown),
        *_peak(timeline, levels, shown, top),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _shown(timeline: Timeline) -> list[int]:
    """Events that are drawn, the peak among them."""
    count = len(timeline.moments)
    width = max(1, -(-count // _COLUMNS))
    return [
        max(
            range(start, min(start + width, count)),
            key=lambda at: (at == timeline.peak, timeline.moments[at].allocated),
        )
        for start in range(0, count, width)
    ]


def _x(index: float, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * index / max(count - 1, 1)


def _y(size: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * size / top


def _text(x: float, y: float, text: str, *, size: int = 13, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(one_line(text))}</text>'


def _axis(top: float) -> list[str]:
    step = next(size for size in (2.0**n for n in range(-12, 24)) if top / GIB / size <= 8)
    lines = []
    for number in range(int(top / GIB / step) + 1):
        y = _y(number * step * GIB, top)
        lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(_text(_LEFT - 8, y + 4, f"{number * step:g} GiB", anchor="end"))
    return lines


def _areas(timeline: Timeline, levels: Sequence[tuple[int, ...]], shown: Sequence[int], top: float) -> list[str]:
    below = [0] * len(shown)
    areas = []
    for column, category in enumerate(timeline.start):
        above = [low + levels[at][column] for low, at in zip(below, shown, strict=True)]
        if above != below:
            upper = [f"{_x(i, len(shown)):.1f},{_y(size, top):.1f}" for i, size in enumerate(above)]
            lower = [f"{_x(i, len(shown)):.1f},{_y(size, top):.1f}" for i, size in enumerate(below)]
            colour = _COLOURS.get(category, "#888")
            areas.append(f'<polygon points="{" ".join([*upper, *reversed(lower)])}" fill="{colour}"/>')
        below = above
    return areas


def _line(points: Sequence[tuple[int, int]], count: int, top: float) -> str:
    drawn = " ".join(f"{_x(index, count):.1f},{_y(size, top):.1f}" for index, size in points)
    return f'<polyline points="{drawn}" fill="none" stroke="black" stroke-width="1.2" stroke-dasharray="5 3"/>'


def _phases(timeline: Timeline, shown: Sequence[int]) -> list[str]:
    marks, before = [], ""
    for index, at in enumerate(shown):
        phase = timeline.moments[at].phase
        if phase != before:
            x = _x(index, len(shown))
            marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="#999"/>')
            # Under each other, for a phase can be too short for its name.
            marks.append(_text(x + 3, _HEIGHT - _BOTTOM + 16 + 14 * (len(marks) // 2 % 3), phase))
            before = phase
    return marks


def _peak(timeline: Timeline, levels: Sequence[tuple[int, ...]], shown: Sequence[int], top: float) -> list[str]:
    if not timeline.moments:
        return []
    moment, standing = timeline.moments[timeline.peak], levels[timeline.peak]
    x, y = _x(shown.index(timeline.peak), len(shown)), _y(moment.allocated, top)
    left, line = _WIDTH - _RIGHT + 16, _TOP + 14
    found = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="black" stroke-width="2"/>',
        _text(left, line, f"peak allocated {format_bytes(moment.allocated)}"),
        _text(left, line + 18, f"in {moment.phase}"),
        _text(left, line + 36, f"reserved (dashed) {format_bytes(max(m.reserved for m in timeline.moments))}"),
        _text(left, line + 54, f"capacity {format_bytes(timeline.capacity)}"),
    ]
    rows = [(name, size) for name, size in zip(timeline.start, standing, strict=True) if size]
    for number, (name, size) in enumerate(sorted(rows, key=lambda row: -row[1])):
        y = line + 90 + 20 * number
        found.append(f'<rect x="{left}" y="{y - 11:.0f}" width="12" height="12" fill="{_COLOURS.get(name, "#888")}"/>')
        found.append(_text(left + 18, y, f"{name.replace('_', ' ')} {format_bytes(size)}"))
    return found
