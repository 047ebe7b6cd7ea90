"""`plan ... --sweep OPTION=A,B`: one job after the other, as a table, a heat map, or one document."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_plan.commands.job.output import check_targets, form_of, screen_of, write_out
from gpu_plan.commands.job.points import check, run, show_progress
from gpu_plan.planner.errors import ExitCode

if TYPE_CHECKING:
    from gpu_plan.planner.sweep.document import SweepDocument


def sweep(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str]) -> int:
    """Runs the sweep that the options ask for and reports it."""
    from gpu_plan.planner.sweep.axes import parse_axes

    axes = parse_axes(args.sweep)
    check(args, axes)
    check_targets(args)
    swept = run(axes, args, words, script_words, show_progress)
    _write(args, swept.document)
    if args.plot:
        from gpu_plan.commands.job.plots import write_sweep_plots

        write_sweep_plots(args, swept.document)
    return ExitCode.OK if swept.document.fits else ExitCode.NOTHING_FITS


def _write(args: argparse.Namespace, document: "SweepDocument") -> None:
    from gpu_plan.commands.report.kept import sweep_report

    form = form_of(args)
    text = _terminal(args, document) if form == "text" else sweep_report(document, form)
    write_out(args, text)


def _terminal(args: argparse.Namespace, document: "SweepDocument") -> str:
    from gpu_plan.reports.sweep.text import render_sweep_text

    width, ascii_only, color = screen_of(args)
    return render_sweep_text(document, width=width, ascii_only=ascii_only, color=color)
