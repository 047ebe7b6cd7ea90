"""What stands in the columns of a stand-in. Pure, and the same at every call."""

import re
from importlib import import_module
from typing import Any

ROWS = 512
WORDS = (
    "the", "model", "reads", "this", "line", "and", "learns", "what", "comes", "after", "it", "because", "every",
    "word", "follows", "another", "one", "here", "there", "then", "now", "not", "all", "some", "more", "less", "first",
    "last", "long", "short", "new", "old",
)  # fmt: skip


def text(words: int, row: int) -> str:
    """So many words; no two rows are alike, for there are loaders that give no text twice in a batch."""
    rest = (WORDS[(row + position * (1 + row % 7)) % len(WORDS)] for position in range(1, words))
    return " ".join((str(row), *rest))


def picture(side: int) -> Any:
    """A black square of Pillow's, which scripts of pictures have; they give it the size that they train on."""
    return import_module("PIL.Image").new("RGB", (side, side))


def value(kind: str, row: int) -> Any:
    """One cell of a kind of `schemas`."""
    name, _, size = kind.partition(":")
    if name.startswith("("):
        parts = (part.split("=") for part in re.split(r",\s*", kind[1:-1]))
        return {key: value(inner, row) for key, inner in parts}
    if name == "texts":
        count, _, words = size.partition(":")
        if words == "1":  # ids of rows that another set has
            return [text(1, (row + number) % ROWS) for number in range(int(count))]
        return [text(int(words), row * int(count) + number) for number in range(int(count))]
    if name in ("chat", "prompt", "answer"):
        turns = [
            {"role": "user", "content": text(128, row)},
            {"role": "assistant", "content": text(512, row + 1)},
        ]
        return {"chat": turns, "prompt": turns[:1], "answer": turns[1:]}[name]
    cells: dict[str, Any] = {
        "text": lambda: text(int(size), row),
        "label": lambda: row % int(size),
        "int": lambda: row + 2,
        "bool": lambda: row % 2 == 0,
        "ints": lambda: [number + 1 for number in range(int(size))],
        "flags": lambda: [int(number == row % int(size)) for number in range(int(size))],
        "image": lambda: picture(int(size)),
        "float": lambda: (row % 10) / 10,
    }
    return cells[name]()


def shown(kinds: dict[str, str]) -> str:
    """Columns with the words of each, for people."""
    return ", ".join(
        f"{name} ({kind.partition(':')[2]} words)" if kind.startswith("text:") else name for name, kind in kinds.items()
    )
