"""`--plot [KIND:]FILE`: draws what was asked for; scaling and sequence plan more points first."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.commands.plan import plot_targets
from planner.commands.sweep import run, show_progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from planner.plan import PlanDocument
    from planner.request import Answer
    from planner.sweep_document import SweepDocument
    from planner.sweep_run import Progress
    from reports.plots import PlotTarget


def write_plots(args: argparse.Namespace, answer: "Answer", words: Sequence[str], script_words: Sequence[str]) -> None:
    """Every plot of a plan."""
    for target in plot_targets(args):
        if target.kind == "timeline":
            _write_timeline(args, target, answer)
            continue
        figure = figure_of(target.kind, answer.document, words, script_words, show_progress)
        if figure is None:
            print(f"plan: note: nothing fits, so {target.path} was not written", file=sys.stderr)
        else:
            _write(args, target, figure)


def write_sweep_plots(args: argparse.Namespace, document: "SweepDocument") -> None:
    """Every plot of a sweep."""
    from reports.plots_sweep import curves, heatmap

    for target in plot_targets(args):
        _write(args, target, heatmap(document) if target.kind == "heatmap" else curves(document))


def _write(args: argparse.Namespace, target: "PlotTarget", figure: "Figure") -> None:
    from planner.plan_io import write_bytes
    from reports.plots_style import as_file

    write_bytes(target.path, as_file(figure, target.form), force=args.force)


def _write_timeline(args: argparse.Namespace, target: "PlotTarget", answer: "Answer") -> None:
    from reports.timeline import write_timeline

    if answer.timeline is None:
        print(
            f"plan: note: nothing fits, so {target.path} was not written; --pin draws how it runs out", file=sys.stderr
        )
        return
    write_timeline(answer.timeline, target.path, force=args.force)


def figure_of(
    kind: str, document: "PlanDocument", words: Sequence[str], script_words: Sequence[str], progress: "Progress"
) -> "Figure | None":
    """A figure of a plan document; None where nothing fits. `words` made it, further points are planned on top."""
    if kind in ("breakdown", "pareto"):
        from reports.plots_memory import breakdown, pareto

        return breakdown(document, titled=True) if kind == "breakdown" else pareto(document, titled=True)
    from planner.sweep_kinds import scaling_axes, sequence_axes, sequence_words
    from reports.plots_sweep import curves

    if kind == "scaling":
        axes = scaling_axes(document)
        return curves(run(axes, _without(words, "--gpus"), script_words, progress).document, scaling=True)
    fixed = sequence_words(document)
    if fixed is None:
        return None
    left = _without(words, "--seq-len", "--micro-batch", "--global-batch", "--grad-accum", *fixed[::2])
    return curves(run(sequence_axes(document), [*left, *fixed], script_words, progress).document)


def _without(words: Sequence[str], *options: str) -> list[str]:
    """Words without options that take a value."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.partition("=")[0] in options:
            skip = "=" not in word
        else:
            kept.append(word)
    return kept
