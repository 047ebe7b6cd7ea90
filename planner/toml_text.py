"""Values written into TOML: whatever a string holds, it is read back as that string, and a comment stays one. Pure."""

import re

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def toml_string(text: str) -> str:
    """A basic string; halves of surrogate pairs, which TOML cannot hold, become U+FFFD."""
    return '"' + "".join(map(_escaped, text)) + '"'


def toml_value(text: str) -> str:
    """`true`, `false` and whole numbers as such, all else as a string."""
    plain = text in ("true", "false") or (text.isascii() and text.isdigit() and (text == "0" or text[0] != "0"))
    return text if plain else toml_string(text)


def toml_comment(text: str) -> str:
    """A comment of one line."""
    return "# " + _UNSEEN.sub(" ", text)


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if "\ud800" <= letter <= "\udfff":
        return "\ufffd"
    return f"\\u{ord(letter):04x}" if _UNSEEN.match(letter) else letter
