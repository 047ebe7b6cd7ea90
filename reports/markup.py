"""HTML built from values: every string is escaped, only `Html` stands as it is."""

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

from gpu_plan.reports.clean import one_line


class Html(str):
    """Markup that is safe to put into a page."""

    __slots__ = ()


Child: TypeAlias = str | int | float | Iterable["Child"] | None
_VOID = frozenset({"meta", "br", "col", "link"})
_ON_ONE_SHEET = 14  # rows of a table that printing keeps together
_NAME = re.compile(r"[a-z][a-z0-9-]*")


def tag(name: str, /, *children: Child, **attributes: str | int | None) -> Html:
    """One element. `class_` and `for_` lose their underscore, others turn it into a hyphen; None leaves one out.

    Strings are put on one line, without control characters, and escaped.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not an element")
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{words}>")
    return Html(f"<{name}{words}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Children one after the other."""
    return Html("".join(_child(child) for child in children))


def escaped(text: str) -> str:
    """Text as it may stand in an element or a quoted attribute."""
    return html.escape(one_line(text), quote=True)


def embedded_json(text: str, identifier: str) -> Html:
    """JSON inside a page, to be read by programs: nothing in it can end the element, and nothing runs."""
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return Html(f'<script type="application/json" id="{escaped(identifier)}">{safe}</script>')


def table(header: Iterable[Child], rows: Iterable[Iterable[Child]], *, text_columns: int = 1, label: str = "") -> Html:
    """A table that scrolls by itself where it is wider than the page; all but the first `text_columns` are figures."""
    heads = list(header)
    side = [None if column < text_columns else "n" for column in range(len(heads))]
    head = tag("tr", [tag("th", cell, scope="col", class_=side[at]) for at, cell in enumerate(heads)])
    body = [tag("tr", [tag("td", cell, class_=side[at]) for at, cell in enumerate(row)]) for row in rows]
    brief = ["brief"] if len(heads) <= 3 and len(heads) - text_columns in (1, 2) else []
    short = ["short"] if len(body) <= _ON_ONE_SHEET else []
    whole = tag("table", tag("thead", head), tag("tbody", body), class_=" ".join(brief + short) or None)
    return tag("div", whole, class_="scroll", role="region", tabindex=0, aria_label=label or "table")


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, (str, int, float)):
        return escaped(str(child))
    return join(child)
