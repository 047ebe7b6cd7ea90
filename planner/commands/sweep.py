"""`plan ... --sweep OPTION=A,B`: one job after the other, as a table, a heat map, or one document."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from planner.request import Note
    from planner.sweep_axes import Axis
    from planner.sweep_document import SweepDocument
    from planner.sweep_run import MakeRequest, Progress, Swept

_SHOWN = ("-o", "--output", "--format", "--plot", "--save", "--snapshot", "--top", "--sweep")
"""Options with a value that say how a sweep is shown, and nothing of a point."""
_SHOWN_FLAGS = ("--json", "--force", "--ascii")


def sweep(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str]) -> int:
    """Runs the sweep that the options ask for and reports it."""
    from planner.commands.plan import check_targets
    from planner.sweep_axes import parse_axes

    axes = parse_axes(args.sweep)
    check(args, axes)
    check_targets(args)
    swept = run(axes, words, script_words, show_progress)
    _write(args, swept.document)
    if args.plot:
        from planner.commands.plots import write_sweep_plots

        write_sweep_plots(args, swept.document)
    return ExitCode.OK if swept.document.fits else ExitCode.NOTHING_FITS


def run(axes: "Sequence[Axis]", words: Sequence[str], script_words: Sequence[str], progress: "Progress") -> "Swept":
    """Every point of the axes on top of the other words."""
    from planner.sweep_run import run_sweep

    dashes = ["--", *script_words] if script_words else []
    command = "plan " + " ".join(shlex.quote(word) for word in [*words, *dashes])
    return run_sweep(axes, maker(words, script_words), _notes(), command=command, progress=progress)


def maker(words: Sequence[str], script_words: Sequence[str]) -> "MakeRequest":
    """Makes the request of a point: the command line but for how the sweep is shown, and the point's own words."""
    from planner.commands.plan import check_subject, request_of
    from planner.options import join_negative, main_parser, refuse_what_is_not_built
    from planner.request import Request

    base = without_shown(words)

    def make(added: Sequence[str]) -> Request:
        # A model goes first, where MODEL stands.
        whole = [*added, *base] if added and not added[0].startswith("-") else [*base, *added]
        parsed = main_parser().parse_args(join_negative(whole))
        refuse_what_is_not_built(parsed)
        check_subject(parsed)
        return replace(request_of(parsed, whole, script_words), suggest=False)

    return make


def without_shown(words: Sequence[str]) -> list[str]:
    """Words without the options that say how a sweep is shown."""
    kept: list[str] = []
    skip = False
    for word in words:
        name = word.partition("=")[0]
        if skip:
            skip = False
        elif name in _SHOWN:
            skip = "=" not in word
        elif word not in _SHOWN_FLAGS and not (word.startswith("-o") and not word.startswith("--")):
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
            raise UsageError(f"{option} is given and swept: leave it out, or out of --sweep")
    if args.model is None and "model" not in swept:
        raise UsageError("which model? name a hub id, folder, config.json or package.module:factory")
    if args.gpus is None and "gpus" not in swept:
        raise UsageError("which GPUs? add --gpus, or --sweep gpus=1xH100,8xH100")


def _notes() -> "Note":
    """Notes of every point, each once; that a step is traced is told by the line of progress already."""
    from planner.commands.plan import Notes

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


def _write(args: argparse.Namespace, document: "SweepDocument") -> None:
    from planner.commands.plan import form_of, write_out
    from planner.commands.report_file import sweep_report

    form = form_of(args)
    text = _terminal(args, document) if form == "text" else sweep_report(document, form)
    write_out(args, text)


def _terminal(args: argparse.Namespace, document: "SweepDocument") -> str:
    import shutil

    from reports.sweep_text import render_sweep_text
    from reports.terminal import wants_color

    to_terminal = args.output is None and sys.stdout.isatty()
    encodable = args.output is not None or (sys.stdout.encoding or "").lower().startswith("utf")
    return render_sweep_text(
        document,
        width=shutil.get_terminal_size((100, 24)).columns,
        ascii_only=args.ascii or not encodable,
        color=wants_color(os.environ, to_terminal),
    )
