"""What there is to complete: verbs, their options and the options' values, read off the parsers."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_plan.verbs import VERBS, verb_parser

_VALUE = re.compile(r"[a-z0-9][a-z0-9-]*")
_LISTS = frozenset(
    (
        "strategy",
        "offload",
        "precision",
        "optimizer",
        "checkpointing",
        "attention",
        "stack",
        "peft",
        "quantize",
        "kind",
        "to",
    )
)
"""Options whose help begins with their values, separated by commas."""
_FILES = frozenset(("FILE", "DIR", "SCRIPT", "[KIND:]FILE", "CHECKPOINT", "PLAN", "RUN"))


@dataclass(frozen=True, slots=True)
class Option:
    """One option of one verb."""

    name: str
    """With its dashes."""
    help: str
    takes_value: bool
    values: tuple[str, ...]
    """Words that may follow; empty where any may."""
    takes_file: bool


@dataclass(frozen=True, slots=True)
class Words:
    """Everything that is completed."""

    main: tuple[Option, ...]
    verbs: Mapping[str, tuple[Option, ...]]


def known_words() -> Words:
    """Read off the parsers of the main job and of every verb."""
    from gpu_plan.planner.options.words import main_parser

    return Words(_options(main_parser(VERBS)), {verb: _options(verb_parser(verb)) for verb in sorted(VERBS)})


def _options(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    return tuple(
        _option(action, name)
        for action in parser._actions
        if action.option_strings and action.help is not argparse.SUPPRESS
        for name in action.option_strings
        if name.startswith("--")
    )


def _option(action: argparse.Action, name: str) -> Option:
    text = str((action.help or "") % {})
    takes_value = action.nargs != 0
    return Option(
        name=name,
        help=text.partition(";")[0].split(". ")[0],
        takes_value=takes_value,
        values=_values(action, name.removeprefix("--"), text) if takes_value else (),
        takes_file=action.metavar in _FILES,
    )


def _values(action: argparse.Action, name: str, text: str) -> tuple[str, ...]:
    if action.choices is not None:
        return tuple(str(choice) for choice in action.choices)
    if name == "set":
        from gpu_plan.planner.options.settings import SETTINGS

        return tuple(f"{key}=" for key in SETTINGS)
    if name not in _LISTS:
        return ()
    without_brackets = re.sub(r"\([^()]*\)", "", text)
    parts = re.split(r"[,;:]", without_brackets)
    return tuple(dict.fromkeys(part.strip() for part in parts if _VALUE.fullmatch(part.strip())))
