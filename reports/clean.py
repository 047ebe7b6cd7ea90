"""Text from models and files made safe to show: one line, controls written out, escaped where needed."""

import re
from collections.abc import Callable

from gpu_plan.planner.visible import visible

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~$#&!])")
_COMMAND = re.compile(r"^(\s*)(::|##\[)")
_BLOCK = re.compile(r"^(\d*)([.)](?=\s|$)|[-+](?=\s|$)|[-=](?=[-=\s]*$))")
"""What begins a list, draws a rule or underlines a heading."""
_ASCII = {"×": "x", "·": "-", "…": "~", "–": "-", "—": "-", "≥": ">=", "≤": "<=", "’": "'", "“": '"', "”": '"'}


def one_line(text: str) -> str:
    """`text` on one line; escapes, and characters that are not seen or turn the others, stand there by their codes."""
    return visible(" ".join(text.split()))


def no_command(line: str) -> str:
    """A line of a log: what GitHub's runner would take for a command of the workflow (`::error::`) is text.

    actions/runner, src/Runner.Common/ActionCommand.cs: both forms count behind leading spaces.
    """
    return _COMMAND.sub(r"\1\\\2", line)


def ascii_line(text: str) -> str:
    """As `one_line`, in ASCII: what has no likeness there becomes `?`."""
    likened = "".join(_ASCII.get(character, character) for character in one_line(text))
    return likened.encode("ascii", "replace").decode("ascii")


def markdown(text: str) -> str:
    """As `one_line`, with everything that Markdown or HTML would take as its own escaped."""
    escaped = _MARKDOWN.sub(r"\\\1", one_line(text))
    return _BLOCK.sub(r"\1\\\2", escaped)


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """`text` as a code span, whatever backticks and bars it holds."""
    line = one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    span = f"{fence}{pad}{line}{pad}{fence}"
    # In a table GFM takes a bar for a cell's end in code spans too, and reads \| as a bar there.
    return span.replace("|", "\\|") if in_table else span


def keep_columns(line: str, clean: Callable[[str], str]) -> str:
    """Columns were padded beforehand: only what stands between runs of spaces is cleaned."""
    return "".join(part if part.isspace() else clean(part) for part in _runs(line)).rstrip()


def _runs(line: str) -> list[str]:
    runs: list[str] = []
    for character in line:
        if runs and (runs[-1][-1] == " ") == (character == " "):
            runs[-1] += character
        else:
            runs.append(character)
    return runs
