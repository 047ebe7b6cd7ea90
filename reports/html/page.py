"""The frame of every page: one file that needs nothing from elsewhere, and parts that several pages share."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gpu_plan.reports.html.style import CSS
from gpu_plan.reports.markup import Child, Html, join, tag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
WIDE, NARROW = 9.6, 4.3
"""Inches of a plot's two drawings; the page shows the one that suits its width."""


def page(title: str, *body: Child) -> str:
    """A whole document, with a final newline. Its policy forbids loading anything, and every script."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content="gpu-plan"),
        tag("title", title),
        tag("style", Html(CSS)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', *body)), lang='en')}\n"


def section(heading: str, *body: Child) -> Html:
    """A section, or nothing where it has no content."""
    content = join(body)
    return tag("section", tag("h2", heading), content) if content else Html("")


def facts(rows: Iterable[tuple[str, Child]]) -> Html:
    """Names and what they are."""
    return tag("dl", [[tag("dt", name), tag("dd", value)] for name, value in rows])


def bullets(items: Iterable[Child]) -> Html:
    """A list, or nothing where it is empty."""
    listed = [tag("li", item) for item in items]
    return tag("ul", listed) if listed else Html("")


def chip(text: str) -> Html:
    """A basis, a mark."""
    return tag("span", text, class_="chip")


def cards(rows: Iterable[tuple[str, str]]) -> Html:
    """Figures that matter most: the figure, and what it is."""
    return tag(
        "div", [tag("div", tag("b", figure), tag("span", what), class_="card") for figure, what in rows], class_="cards"
    )


def plot(name: str, draw: "Callable[[float], Figure]", title: str, caption: Child = None) -> Html:
    """A plot drawn for a wide page and for a narrow one. `draw` takes the width in inches."""
    from gpu_plan.reports.plots.style import inline_svg

    return tag(
        "figure",
        tag("div", inline_svg(draw(WIDE), f"{name}-w", title), class_="wide"),
        tag("div", inline_svg(draw(NARROW), f"{name}-n", title), class_="narrow"),
        tag("figcaption", caption) if caption else None,
    )
