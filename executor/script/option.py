"""What one option of a script's command line is, and how a literal is read from a syntax tree."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Takes = Literal["value", "flag", "boolean", "many"]
"""What follows an option: one value; nothing; `true` or `false`, or nothing; any number of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a script."""

    name: str
    """The longest spelling, dashes included: `--batch-size`."""
    spellings: tuple[str, ...]
    takes: Takes = "value"
    help: str = ""
    choices: tuple[str, ...] = ()
    off: str | None = None
    """The flag that says no, such as `--no-bf16`."""
    default: object = None
    """Where it is not given, as far as it is a literal; None for any other."""
    line: int = 0

    @property
    def word(self) -> str:
        """`batch_size`, whichever dashes the script writes."""
        return plain_word(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """What a script's command line takes, as far as its text tells."""

    options: Mapping[str, Option] = field(default_factory=dict)
    """By every spelling."""
    training_arguments: str | None = None
    """Class of Hugging Face's training arguments that the command line fills: `TrainingArguments`, `SFTConfig`."""
    commands: bool = False
    """Whether options belong to subcommands: where to put one is then not known."""

    def by_word(self, *words: str) -> Option | None:
        """The first of `words` that names an option, dashes and underscores alike."""
        named = {plain_word(spelling): option for spelling, option in self.options.items()}
        return next((named[word] for word in words if word in named), None)


def plain_word(spelling: str) -> str:
    """`--Batch-size` as `batch_size`."""
    return spelling.lstrip("-").replace("-", "_").lower()


def constant(node: ast.expr | None) -> object:
    """The value of a literal, a tuple of them where it is a list or tuple; None for everything else."""
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The call's keyword arguments by name; `**` ones are left out."""
    return {word.arg: word.value for word in call.keywords if word.arg is not None}


def strings(values: list[ast.expr]) -> list[str]:
    return [value for node in values if isinstance(value := constant(node), str)]


def make_option(spellings: list[str], takes: Takes, given: Mapping[str, ast.expr], line: int) -> Option:
    choices = constant(given.get("choices"))
    text = constant(given.get("help"))
    return Option(
        name=max(spellings, key=len),
        spellings=tuple(spellings),
        takes=takes,
        help=text if isinstance(text, str) else "",
        choices=tuple(map(str, choices)) if isinstance(choices, (list, tuple, set)) else (),
        default=constant(given.get("default")),
        line=line,
    )
