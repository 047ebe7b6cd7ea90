"""`--plot [KIND:]FILE`: draws what was asked for; scaling and sequence plan more points first."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.commands.plan import plot_targets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from planner.plan import PlanDocument
    from planner.request import Answer
    from planner.sweep_document import SweepDocument
    from reports.plots import PlotTarget


def write_plots(args: argparse.Namespace, answer: "Answer", words: Sequence[str], script_words: Sequence[str]) -> None:
    """Every plot of a plan."""
    for target in plot_targets(args):
        if target.kind == "timeline":
            _write_timeline(args, target, answer)
            continue
        figure = _figure(target, args, answer.document, words, script_words)
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


def _figure(
    target: "PlotTarget",
    args: argparse.Namespace,
    document: "PlanDocument",
    words: Sequence[str],
    script_words: Sequence[str],
) -> "Figure | None":
    if target.kind in ("breakdown", "pareto"):
        from reports.plots_memory import breakdown, pareto

        return breakdown(document, titled=True) if target.kind == "breakdown" else pareto(document, titled=True)
    from planner.commands.sweep import run, without_shown
    from reports.plots_sweep import curves

    if target.kind == "scaling":
        from planner.sweep_kinds import scaling_axes

        return curves(run(args, scaling_axes(document), _without(words, "--gpus"), script_words).document, scaling=True)
    from planner.sweep_kinds import sequence_axes, sequence_words

    fixed = sequence_words(document)
    if fixed is None:
        return None
    left = _without(without_shown(words), "--seq-len", "--micro-batch", "--global-batch", "--grad-accum", *fixed[::2])
    return curves(run(args, sequence_axes(document), [*left, *fixed], script_words).document)


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
