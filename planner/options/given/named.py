"""A job by named values, as files, programs and other processes give it: it never passes through words.

A value of a file is a value. Were it written behind `--option` and parsed again, one that begins with a dash would be
an option of ours, which runs a script or prints the help and leaves. Here each value is put where argparse would have
put it, by the name of its option.
"""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.options.parser import COMPILED, job_option_names, settle_compilation
from gpu_plan.planner.options.words import main_parser

_DECLINED = ("compile", "fused-loss")
"""Flags that can be declined in a word of their own."""
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys or a path cannot hold: control characters, lines, changes of direction, lone surrogates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A job as it was asked for, option by option."""

    model: str | None = None
    gpus: str | None = None
    options: Mapping[str, str | bool] = field(default_factory=dict)
    """By name without dashes; flags are true or false."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What `--set` takes, by key."""


def named(values: Mapping[str, object]) -> Named:
    """Values by option name, `model`, `gpus` and `set` (a flat table) among them; what is None was not given.

    InputError in one line, which begins with the option's name, for an option that there is not and a value of the
    wrong form. What a value means is checked where it is read, as that of a word.
    """
    settings = values.get("set")
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError("set must be a table of settings")
    given = {name: value for name, value in values.items() if name not in ("model", "gpus", "set")}
    return Named(
        model=None if values.get("model") is None else _model(values["model"]),
        gpus=None if values.get("gpus") is None else _text("gpus", values["gpus"]),
        options={name: _value(name, value) for name, value in given.items() if value is not None},
        settings={_key(key): _text(str(key), item) for key, item in (settings or {}).items()},
    )


def namespace(job: Named) -> argparse.Namespace:
    """What parsing the job's words would give, every other option at its default."""
    return overlaid(argparse.Namespace(**_defaults()), job)


def overlaid(before: argparse.Namespace, job: Named) -> argparse.Namespace:
    """Parsed options with the job's values in place of theirs; what the job does not name stays."""
    args, actions = argparse.Namespace(**vars(before)), _actions()
    args.model, args.gpus = job.model or before.model, job.gpus or before.gpus
    kept = [word for word in before.settings if word.partition("=")[0] not in job.settings]
    for name, value in job.options.items():
        action = actions[name]
        if action.const is None or value is True:
            setattr(args, action.dest, value if action.const is None else action.const)
        elif name in _DECLINED:
            setattr(args, action.dest, actions[f"no-{name}"].const)
    args.settings = [*kept, *(f"{key}={value}" for key, value in job.settings.items())]
    if "compile" in job.options:
        settle_compilation(args)
    return args


def shown_words(job: Named) -> list[str]:
    """The command line that asks for the same, to be shown: nothing of ours reads it."""
    words = [] if job.model is None else [job.model]
    words += [] if job.gpus is None else option_words("gpus", job.gpus)
    for name, value in job.options.items():
        # A backend that is named overrules the flag.
        words += [] if name == "compile" and set(COMPILED) & set(job.settings) else option_words(name, value)
    return [*words, *(word for key, value in job.settings.items() for word in ("--set", f"{key}={value}"))]


def option_words(name: str, value: str | bool) -> list[str]:
    """One option as a command line has it; what is off by default needs no word."""
    if value is True:
        return [f"--{name}"]
    if value is False:
        return [f"--no-{name}"] if name in _DECLINED else []
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]


@cache
def _defaults() -> Mapping[str, object]:
    return vars(main_parser().parse_args([]))


@cache
def _actions() -> Mapping[str, argparse.Action]:
    """Every option's action, by name without dashes."""
    return {string.removeprefix("--"): action for action in main_parser()._actions for string in action.option_strings}


@cache
def _names() -> tuple[str, ...]:
    return job_option_names()


def _value(name: str, value: object) -> str | bool:
    if name not in _names():
        hint = did_you_mean(name[:40], _names(), limit=1)
        raise InputError(f"{name[:40]!r} is not an option of a job.{hint}")
    action = _actions()[name]
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise InputError(f"{name} must be true or false")
        return value
    if isinstance(value, bool):
        raise InputError(f"{name} must be a value, not {str(value).lower()}")
    text = _text(name, value)
    if action.choices is not None and text not in action.choices:
        raise InputError(f"{name} {text[:40]!r} is unknown: use {' or '.join(map(str, action.choices))}")
    return text


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    listed = value if isinstance(value, (list, tuple)) else [value]
    if not listed or not all(isinstance(item, (str, int, float)) for item in listed):
        raise InputError(f"{name[:40]} must be a string, a number, true or false, or a list of strings")
    text = ",".join(map(str, listed))
    if _UNSEEN.search(text):
        raise InputError(f"{name[:40]} {text[:60]!r} holds a character that cannot be shown, such as a line's end")
    return text


def _model(value: object) -> str:
    text = _text("model", value)
    if text.startswith("-"):
        raise InputError(f"model {text[:60]!r} begins with a dash, as no model does: write a path as ./{text[:60]}")
    return text


def _key(key: object) -> str:
    text = _text("set", key)
    if "=" in text:
        raise InputError(f"set {text[:60]!r} is not a setting's name")
    return text
