"""The points of a sweep, each a job of its own."""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_plan.commands.job.asking import Notes, check_subject, request_of
from gpu_plan.planner.errors import UsageError

if TYPE_CHECKING:
    from gpu_plan.planner.options.request import Note
    from gpu_plan.planner.sweep.axes import Axis
    from gpu_plan.planner.sweep.run import MakeRequest, Progress, Swept

_VALUED = ("output", "format", "plot", "save", "snapshot", "top", "sweep")
_FLAGS = ("json", "force", "ascii", "quiet")
_SHOWN = (*_VALUED, *_FLAGS)
"""Options that say how a sweep is shown, and nothing of a point: with a value, and without."""


def run(
    axes: "Sequence[Axis]",
    args: argparse.Namespace,
    words: Sequence[str],
    script_words: Sequence[str],
    progress: "Progress",
) -> "Swept":
    """Every point of the axes on top of the other options; `words` are the command line as it is shown."""
    from gpu_plan.planner.sweep.run import run_sweep

    dashes = ["--", *script_words] if script_words else []
    command = "plan " + " ".join(shlex.quote(word) for word in [*words, *dashes])
    return run_sweep(axes, maker(args, words, script_words), _notes(), command=command, progress=progress)


def maker(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str]) -> "MakeRequest":
    """Makes the request of a point: the options but for how the sweep is shown, and the point's own values."""
    from gpu_plan.planner.options.given.named import Named, named, namespace, overlaid, shown_words
    from gpu_plan.planner.options.parser import refuse_what_is_not_built
    from gpu_plan.planner.options.request import Request

    plain = vars(namespace(Named()))
    base = argparse.Namespace(**{**vars(args), **{name: plain[name] for name in _SHOWN}})
    shown = without_shown(words)

    def make(added: "Mapping[str, object]") -> Request:
        job = named(added)
        parsed = overlaid(base, job)
        refuse_what_is_not_built(parsed)
        check_subject(parsed)
        # A model goes first, where MODEL stands.
        extra = shown_words(job)
        whole = [*extra, *shown] if job.model is not None else [*shown, *extra]
        return replace(request_of(parsed, whole, script_words), suggest=False)

    return make


def without_shown(words: Sequence[str]) -> list[str]:
    """Words without the options that say how a sweep is shown."""
    valued, flags = {"-o", *(f"--{name}" for name in _VALUED)}, {f"--{name}" for name in _FLAGS}
    kept: list[str] = []
    skip = False
    for word in words:
        name = word.partition("=")[0]
        if skip:
            skip = False
        elif name in valued:
            skip = "=" not in word
        elif word not in flags and not (word.startswith("-o") and not word.startswith("--")):
            kept.append(word)
    return kept


def check(args: argparse.Namespace, axes: "Sequence[Axis]") -> None:
    """UsageError for options that do not go with a sweep, or say what an axis varies."""
    for option, value in (("--save", args.save), ("--snapshot", args.snapshot)):
        if value is not None:
            raise UsageError(f"{option} is about one plan: leave out --sweep, or plan the point that you choose")
    swept = {axis.name for axis in axes}
    settings = {word.partition("=")[0] for word in args.settings}
    for axis in axes:
        given = (
            axis.name in settings if axis.is_setting else getattr(args, axis.name.replace("-", "_"), None) is not None
        )
        if given:
            option = "MODEL" if axis.name == "model" else f"--{'set ' if axis.is_setting else ''}{axis.name}"
            raise UsageError(f"{option} is both given and swept: leave out one of the two")
    if args.model is None and "model" not in swept:
        raise UsageError("which model? name a hub id, folder, config.json or package.module:factory")
    if args.gpus is None and "gpus" not in swept:
        raise UsageError("which GPUs? add --gpus, or --sweep gpus=1xH100,8xH100")


def _notes() -> "Note":
    """Notes of every point, each once; that a step is traced is told by the line of progress already."""
    notes = Notes()

    def note(text: str) -> None:
        if not text.startswith("tracing"):
            notes(text)

    return note


def show_progress(done: int, of: int) -> None:
    """For people at a terminal, on one line that is wiped at the end."""
    if sys.stderr.isatty():
        text = f"plan: {done} of {of} points ..." if done < of else ""
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()
