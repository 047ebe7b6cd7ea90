"""How plots look, and how a figure becomes a file or a part of a page. Imported only where one is drawn."""

import io
import re
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from gpu_plan.reports.clean import one_line
from gpu_plan.reports.markup import Html, tag

INK, MUTED, EDGE, GRID, ALARM, PAPER = "#222222", "#666666", "#b0b0b0", "#dddddd", "#c0392b", "#ffffff"
BAND = "#f0f2f5"
COLOURS = {
    "parameters": "#4e79a7", "gradients": "#f28e2b", "optimizer_state": "#76b7b2", "activations": "#e15759",
    "temporary": "#edc948", "communication": "#b07aa1", "buffers": "#9c755f", "inputs": "#59a14f",
    "kv_cache": "#bab0ac", "cached": "#8cb4d8", "outside": "#ff9da7", "other": "#888888", "small": "#888888",
}  # fmt: skip
"""By category; mid-tones that stand out from white and from black."""
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": EDGE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "plan",
}
_THEMED = {
    INK: "var(--ink)", MUTED: "var(--muted)", EDGE: "var(--edge)", GRID: "var(--grid)", ALARM: "var(--alarm)",
    PAPER: "var(--paper)", BAND: "var(--band)",
}  # fmt: skip
"""What changes with the theme; the page defines the variables."""
_STYLE_ATTRIBUTE = re.compile(r'style="[^"]*"')
_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
_PATH = re.compile(r' d="([^"]*)"')
_SEGMENT = re.compile(r"([A-Za-z])\s*([^A-Za-z]*)")
_FONT = re.compile(r"font: ([^;\"]*?)(\d[\d.]*px) [^;\"]*")


def style() -> Any:
    """Context in which figures are drawn and written."""
    return matplotlib.rc_context(STYLE)


def as_file(figure: Figure, form: str) -> bytes:
    """`png`, `svg` or `pdf`; the same bytes for the same figure."""
    stream = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with style():
        figure.savefig(stream, format=form, dpi=130, facecolor=PAPER, metadata=undated)
    return stream.getvalue()


def inline_svg(figure: Figure, name: str, title: str) -> Html:
    """The figure as an `svg` element that takes the page's colours and font, scales with its width, and says `title`.

    `name` keeps its ids apart from those of other plots on the page.
    """
    stream = io.StringIO()
    with style():
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = _COMMENT.sub("", _METADATA.sub("", text[text.index("<svg") :]))
    text = _STYLE_ATTRIBUTE.sub(lambda found: _themed(found[0]), text)
    text = _PATH.sub(lambda found: f' d="{_rounded(found[1])}"', text)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', text)
    text = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\1{name}-", text)
    opening, rest = text.split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', opening)
    view = box[1] if box else "0 0 100 100"
    start = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return Html(f'{start} viewBox="{view}" role="img">{tag("title", title)}{rest.strip()}')


TITLE_INCHES = 0.62
"""Height that `add_title` takes."""


def add_title(figure: Figure, title: str, under: str) -> None:
    """Two lines at the top of a figure that stands alone."""
    height, width = float(figure.get_figheight()), float(figure.get_figwidth())
    left = 0.12 / width
    longest = int(width * 9)
    figure.text(left, 1 - 0.3 / height, shortened(one_line(title), longest), fontsize=13, fontweight="bold")
    figure.text(left, 1 - 0.52 / height, under, color=MUTED)


def shortened(text: str, longest: int) -> str:
    """Without its middle where it is too long: what differs stands at the ends."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]} … {text[-half:]}"


def _themed(attribute: str) -> str:
    for colour, variable in _THEMED.items():
        attribute = attribute.replace(colour, variable)
    return _FONT.sub(r"font: \1\2 var(--font)", attribute)


def _rounded(path: str) -> str:
    """A path with coordinates to a tenth of a point; steps as `H` and `V`, lines to the same point left out."""
    words: list[str] = []
    x = y = ""
    for found in _SEGMENT.finditer(path):
        command, numbers = found[1], [_tenth(number) for number in found[2].split()]
        if command != "L" or (numbers[0] != x and numbers[1] != y):
            words.append(f"{command}{' '.join(numbers)}")
        elif numbers[0] != x:
            words.append(f"H{numbers[0]}")
        elif numbers[1] != y:
            words.append(f"V{numbers[1]}")
        if len(numbers) >= 2:
            x, y = numbers[-2:]
    return "".join(words)


def _tenth(number: str) -> str:
    text = f"{float(number):.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
