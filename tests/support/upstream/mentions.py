"""Files of other projects that a text names, with the symbols that it names beside them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FILE = re.compile(
    r"(?<![\w./<*{}-])(?P<file>(?!(?:ggml-org/)?llama\.cpp)[\w{][\w./*{},-]*\.(?:py|cpp|cuh|cu|hpp|h))\b(?!/)"
)
_BRACES = re.compile(r"\{([^{}]*)\}")
_WORD = re.compile(r"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, slots=True)
class Mention:
    """A file as a text names it."""

    file: str
    before: str
    """The text up to the file: it may name the project."""
    listed: tuple[str, ...]
    """Words directly behind the file, after a colon or in brackets: symbols, though they look like English."""
    near: tuple[str, ...]
    """Other words up to the next file that look like code."""


def mentions(text: str) -> list[Mention]:
    """Every file that `text` names and that says something: a path, or a name with symbols behind it."""
    found = list(_FILE.finditer(text))
    ends = [*(match.start() for match in found), len(text)][1:]
    return [mention for match, end in zip(found, ends, strict=False) for mention in _mentions(text, match, end)]


def _mentions(text: str, match: re.Match[str], end: int) -> Iterator[Mention]:
    behind = text[match.end() : end]
    listed = _listed(behind)
    near = tuple(word for word in _WORD.findall(behind) if _is_code(word) and word not in listed)
    for file in _spelled_out(match["file"]):
        yield Mention(file, text[: match.start()], listed, near)


def _spelled_out(file: str) -> list[str]:
    """`trainer/{dpo,kto}_config.py` as two names."""
    braces = _BRACES.search(file)
    if braces is None:
        return [file]
    chosen = [file[: braces.start()] + choice + file[braces.end() :] for choice in braces[1].split(",")]
    return [name for one in chosen for name in _spelled_out(one)]


def _listed(behind: str) -> tuple[str, ...]:
    """The items of the list that follows: `: a, B.c and d` or ` (a, b with its ..., c)`."""
    colon = re.match(r"`?: `?([^;()]*?)(?:[;()]|\. |\.$|$)", behind)
    bracket = re.match(r"`? \(([^()]*)\)", behind)
    inside = colon[1] if colon else bracket[1] if bracket else ""
    after = re.match(r"`?: [\w.]+ \(([^()]*)\)", behind)  # file.py: Class (method, method)
    items = re.split(r",| and | or ", inside + ("," + after[1] if after else ""))
    first = [_WORD.match(item.strip(" `")) for item in items]
    return tuple(word[0] for word in first if word)


def _is_code(word: str) -> bool:
    return "_" in word or "." in word or bool(re.search(r"[a-z][A-Z]|[A-Z][A-Z]+[a-z]|[a-z]\d", word))
