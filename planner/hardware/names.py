"""Which names mean which GPU: case, punctuation, maker and brand words do not count."""

import re
from collections.abc import Iterable, Iterator

_BRANDS = re.compile(r"(?:nvidia|geforce|rtx|tesla|amd|instinct|intel|google|aws)+")
_WORD = re.compile(r"[a-z0-9]+")
MAX_NAME = 80


def squash(text: str) -> str:
    """`NVIDIA A100-SXM4-80GB` -> `a100sxm480gb`; empty for brands alone and for text that is not ASCII."""
    if not text.isascii() or len(text) > MAX_NAME:
        return ""
    words = []
    for word in _WORD.findall(text.lower()):
        brand = _BRANDS.match(word)
        words.append(word[brand.end() :] if brand else word)
    return "".join(words)


def keys(names: Iterable[str], forms: Iterable[str], sizes: Iterable[int]) -> Iterator[str]:
    """Every squashed name of one GPU: base name, with or without form factor and size, in either order."""
    form_keys = ["", *(form.lower() for form in forms)]
    size_keys = ["", *(f"{size}{unit}" for size in sizes for unit in ("gb", "gib", "g", ""))]
    for name in names:
        base = squash(name)
        for form in form_keys:
            for size in size_keys:
                yield base + form + size
                if form and size:
                    yield base + size + form
