"""A shell command broken into lines that can still be copied."""

import re

_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*'|["'])+""")


def command_lines(command: str, width: int) -> list[str]:
    """`command` in lines of at most `width` where its words allow it, all but the last ending in ` \\`.

    Breaks before options, so that an option stays with its value; never inside a word.
    """
    if len(command) <= width:
        return [command]
    lines: list[str] = []
    current = ""
    for chunk in _chunks(command):
        longer = f"{current} {chunk}" if current else chunk
        if current and len(longer) > width - 2:
            lines.append(current + " \\")
            current = "  " + chunk
        else:
            current = longer
    return [*lines, current]


def _chunks(command: str) -> list[str]:
    """Words, an option joined with the value after it."""
    chunks: list[str] = []
    for word in _WORD.findall(command):
        takes_value = bool(chunks) and re.fullmatch(r"--?[A-Za-z][\w-]*", chunks[-1])
        if takes_value and not word.startswith("-"):
            chunks[-1] += " " + word
        else:
            chunks.append(word)
    return chunks
