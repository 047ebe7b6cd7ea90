"""Values that break readers, and sound documents with some of them inside. Pure: all chance comes from `Random`."""

import json
from random import Random
from typing import Any

from benchmarks.hostile.case import CANARY

PAYLOADS = (
    f"--execute={CANARY}.py",
    "--help",
    "-h",
    "--",
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"; touch {CANARY} ;",
    f"__import__('os').system('touch {CANARY}')",
    f"{{{{config.__class__.__init__.__globals__['os'].system('touch {CANARY}')}}}}",
    "../../../../etc/passwd",
    "/dev/zero",
    "/proc/self/mem",
    "/proc/kmsg",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[31m",
    "\u202egnp.\u2066",
    "[red]x[/red][link=file:///etc]y[/link]",
    "<script>alert(1)</script>",
    "::error::x\n::add-mask::y",
    "=cmd|' /C calc'!A0",
    "a\nb\r\nc",
    "a\x00b",
    "\ud800",
    "\ufeff",
    "%s%n{0}{x!r}",
    "²",
    "٣",
    "𝟙",
    "NaN",
    "os",
    "none",
    "null",
    "~",
    "",
    " ",
    "x" * 5000,
    "é" * 300,
    "9" * 5000,
    "1e999",
    "0x" + "f" * 300,
    "1_0",
    "-0",
)
NUMBERS = (
    0, -1, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**39, 10**400, 10**8,
    1.5, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": None}, [None], {"a": {"b": {}}})


def text(rng: Random) -> str:
    """A string that somebody should not have written."""
    if rng.random() < 0.15:
        return "".join(chr(rng.choice((rng.randrange(1, 128), rng.randrange(128, 0x2FFF)))) for _ in range(9))
    return rng.choice(PAYLOADS)


def value(rng: Random) -> Any:
    """Any JSON value."""
    draw = rng.random()
    if draw < 0.4:
        return rng.choice(NUMBERS)
    if draw < 0.7:
        return text(rng)
    if draw < 0.9:
        return rng.choice(OTHERS)
    return nested(rng.choice((5, 70, 300)), rng.random() < 0.5)


def nested(depth: int, lists: bool) -> Any:
    """Lists or objects in one another."""
    made: Any = 1
    for _ in range(depth):
        made = [made] if lists else {"a": made}
    return made


def spoil(rng: Random, document: Any, changes: int) -> Any:
    """A copy in which `changes` values are replaced, taken out, doubled or renamed."""
    made = json.loads(json.dumps(document))
    for _ in range(changes):
        holder, key = _place(rng, made)
        if holder is None:
            return value(rng)
        draw = rng.random()
        if draw < 0.65:
            holder[key] = value(rng)
        elif draw < 0.8:
            del holder[key]
        elif isinstance(holder, dict):
            holder[text(rng)] = holder[key] if draw < 0.9 else holder.pop(key)
        else:
            holder[key:key] = [holder[key]] * rng.choice((1, 50))
    return made


def broken(rng: Random, content: bytes) -> bytes:
    """Bytes that were cut, flipped, doubled, put into another encoding or wrapped."""
    draw = rng.randrange(9)
    at = rng.randrange(len(content) + 1)
    if draw == 0:
        return content[:at]
    if draw == 1:
        return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
    if draw == 2:
        return content[:at] + rng.randbytes(20) + content[at:]
    if draw == 3:
        return content + content
    if draw == 4:
        return content.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7")))
    if draw == 5:
        return b'{"a":' * rng.choice((60, 5000, 200_000))
    if draw == 6:
        return b"[" * rng.choice((60, 5000, 1_000_000))
    if draw == 7:
        return b'{"document": "saved-plan", "a": [' + b"[]," * rng.choice((10, 300_000)) + b"1]}"
    return content.replace(b"1", b"1" * rng.choice((2, 20, 4400)))


def as_json(document: Any) -> bytes:
    """JSON with everything that Python's own writer lets through: NaN, infinities, halves of pairs."""
    try:
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except ValueError:  # an integer that Python will not print
        return b'{"n": 1' + b"0" * 400 + b"}"


def _place(rng: Random, document: Any) -> tuple[Any, Any]:
    """A list or object in `document` and one of its keys; (None, None) where there is nothing to be changed."""
    places: list[tuple[Any, Any]] = []
    left = [document]
    while left:
        held = left.pop()
        keys = list(held) if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else ()
        places += [(held, key) for key in keys]
        left += [held[key] for key in keys]
    return rng.choice(places) if places else (None, None)
