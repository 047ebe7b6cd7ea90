"""Texts that a script downloads by itself before it trains, where the walls let nothing through.

Only plain text files (`.txt`, `.md`) and HellaSwag's rows are stood in for: of any other file nothing tells what stands
in it.
"""

import email.message
import functools
import io
import json
import random
import string
import urllib.parse
import urllib.request
import urllib.response
from collections.abc import Callable
from typing import Any

from gpu_plan.planner.capture.imports import when_imported
from gpu_plan.planner.capture.standin.told import Told

_PLAIN = (".txt", ".md")
_ROWS = 64
_KNOWN = {
    "hellaswag_": {
        "ind": 0,
        "activity_label": "words",
        "ctx": "the model reads this line",
        "label": 1,
        "endings": ["and learns", "and forgets", "and stops there", "because every word follows another"],
    },
}
"""One row of files of JSON lines that many scripts evaluate on, by how their names begin."""
_WORDS, _LINES, _A_LINE = 2_000, 24_000, 7
"""Of the text that stands in: about as large as the plays that beginners train on, a megabyte."""


def stand_in_for_downloads(told: Told) -> None:
    """For the rest of the process: urllib, and requests where it is imported."""
    urllib.request.urlopen = functools.partial(_opened, told, urllib.request.urlopen)
    when_imported("requests", lambda module: _take(told, module))


def _take(told: Told, module: Any) -> None:
    if not hasattr(module, "Response") or not hasattr(module, "get"):
        return  # a file of the user's own that is called so
    get = module.get

    def got(url: Any, *args: Any, **kwargs: Any) -> Any:
        return _or_text(
            told, url, lambda: get(url, *args, **kwargs), lambda content: _response(module, str(url), content)
        )

    module.get = got


def _response(module: Any, url: str, content: str) -> Any:
    made = module.Response()
    made.status_code, made.url, made.encoding = 200, url, "utf-8"
    made.raw = io.BytesIO(content.encode())
    return made


def _opened(told: Told, original: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
    def made(content: str) -> Any:  # urlretrieve opens by it too
        return urllib.response.addinfourl(io.BytesIO(content.encode()), email.message.Message(), str(url), 200)

    return _or_text(told, url, lambda: original(url, *args, **kwargs), made)


def _or_text(told: Told, url: Any, load: Callable[[], Any], instead: Callable[[str], Any]) -> Any:
    try:
        return load()
    except OSError:  # requests' own, urllib's
        address = getattr(url, "full_url", url)
        content = _instead(str(urllib.parse.urlsplit(str(address)).path))
        if content is None:
            raise
        told.need(f"the text {address}")
        told.tell(f"the text {address} is a stand-in of {len(content):,} characters: what it says is not known here")
        return instead(content)


def _instead(path: str) -> str | None:
    """What stands in for a file of this name; None for one of which nothing is known."""
    row = next((row for name, row in _KNOWN.items() if path.rpartition("/")[2].startswith(name)), None)
    if row is not None:
        return f"{json.dumps(row)}\n" * _ROWS
    return text() if path.endswith(_PLAIN) else None


@functools.cache
def text() -> str:
    """English by its letters and marks alone: words that come as often as words do, names, digits."""
    chance = random.Random(0)
    words = ["".join(chance.choices("etaoinshrdlucmfwygpbvkxqjz", k=chance.randint(2, 8))) for _ in range(_WORDS)]
    weights = [1 / (place + 1) for place in range(_WORDS)]
    lines = []
    for number in range(_LINES):
        line = chance.choices(words, weights, k=_A_LINE)
        ends = string.punctuation[number % len(string.punctuation)] if number % 9 == 0 else ".,;:!?'-"[number % 8]
        lines.append(f"{line[0].capitalize()} {' '.join(line[1:])}{ends}")
        if number % 5 == 0:
            lines.append(f"\n{words[number % _WORDS].upper()} {string.digits[number % 10]}:")
    return "\n".join(lines) + "\n"
