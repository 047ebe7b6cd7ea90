"""The page of all options, read off the parsers of the main job and of every verb."""

import argparse
from collections.abc import Iterator

from gpu_plan.planner.options.words import main_parser
from gpu_plan.verbs import VERBS, verb_parser

_HEAD = """\
# Options

`plan MODEL --gpus SPEC [options] [-- words for the script]` is the main job; a verb stands first. Options are never
abbreviated, each is given once (but for those that are repeatable), and a folder or file named like a verb is written
`./check`. `plan help` and `plan help VERB` print the same in the terminal; `plan completion SHELL` prints a script
that completes them.

What is not given is searched (strategy, offload, checkpointing, micro batch, accumulation, degrees) or has a default:
sequence length 4096 or the model's positions where those are fewer, precision bf16-mixed (fp16-mixed where the GPU has
no bfloat16), optimizer adamw, attention sdpa. `--pin` searches nothing. Every value that was used is told by `--json`
with where it came from: `given`, `default`, `searched`, `captured`.
"""


def options_page() -> str:
    """The page, as Markdown."""
    parts = [_HEAD, *_groups(main_parser(VERBS), "##")]
    for verb in sorted(VERBS):
        parser = verb_parser(verb)
        usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
        said = " ".join(str(parser.description or "").split())
        parts.append(f"## plan {verb}\n\n```text\n{usage}\n```\n\n{_escaped(said)}\n")
        if verb != "explore":  # it takes the main job's
            parts += _groups(parser, "###", verb)
    return "\n".join(parts)


def _groups(parser: argparse.ArgumentParser, level: str, verb: str = "") -> Iterator[str]:
    for group in parser._action_groups:
        rows = [row for action in group._group_actions if (row := _row(action))]
        if rows:
            title = f"{level} {str(group.title).capitalize()}" if not verb else ""
            yield "\n".join([title, "", "| option | meaning |", "|---|---|", *rows, ""])


def _row(action: argparse.Action) -> str:
    if action.help is argparse.SUPPRESS or "--help" in action.option_strings:
        return ""
    names = [*action.option_strings] or [str(action.metavar or action.dest)]
    value = _value(action) if action.option_strings and action.nargs != 0 else ""
    text = str((action.help or "") % {})
    return f"| `{', '.join(names)}{value}` | {_escaped(text)} |".replace("`|", "`\\|")


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return " " + "\\|".join(str(choice) for choice in action.choices)
    return f" {action.metavar or action.dest.upper()}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
