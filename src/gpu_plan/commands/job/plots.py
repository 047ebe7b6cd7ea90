"""`--plot [KIND:]FILE`: draws what was asked for; scaling and sequence plan more points first."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_plan.commands.job.output import plot_targets
from gpu_plan.commands.job.points import run, show_progress
from gpu_plan.notes import say
from gpu_plan.planner.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpu_plan.planner.options.request import Answer
    from gpu_plan.planner.plan.document import PlanDocument
    from gpu_plan.planner.sweep.document import SweepDocument
    from gpu_plan.planner.sweep.run import Progress
    from gpu_plan.reports.plots.targets import PlotTarget


def write_plots(args: argparse.Namespace, answer: "Answer", words: Sequence[str], script_words: Sequence[str]) -> None:
    """Every plot of a plan."""
    for target in plot_targets(args):
        if target.kind == "timeline":
            _write_timeline(args, target, answer)
            continue
        figure = figure_of(target.kind, answer.document, args, words, script_words, show_progress)
        if figure is None:
            say(f"nothing fits, so {target.path} was not written")
        else:
            _write(args, target, figure)


def write_sweep_plots(args: argparse.Namespace, document: "SweepDocument") -> None:
    """Every plot of a sweep."""
    from gpu_plan.reports.plots.sweep import curves, heatmap

    for target in plot_targets(args):
        _write(args, target, heatmap(document) if target.kind == "heatmap" else curves(document))


def _write(args: argparse.Namespace, target: "PlotTarget", figure: "Figure") -> None:
    from gpu_plan.planner.plan.files import write_bytes
    from gpu_plan.reports.plots.style import as_file

    write_bytes(target.path, as_file(figure, target.form), force=args.force)


def _of_stages(kind: str, document: "PlanDocument") -> "Figure | None":
    """Of the best plan; UsageError where it has no stages."""
    from gpu_plan.reports.plots.stages import memory_by_stage, waiting_by_stage

    best = document.best
    if best is None or best.memory is None or best.speed is None:
        return None
    if not best.stages:
        raise UsageError(f"--plot {kind}: the best plan has no pipeline stages; --pp asks for some")
    draw = memory_by_stage if kind == "stages" else waiting_by_stage
    return draw(best, titled=True)


def _of_ranks(document: "PlanDocument") -> "Figure | None":
    """Of the best plan; UsageError where only its worst rank is told."""
    from gpu_plan.reports.plots.stages import memory_by_rank

    best = document.best
    if best is None or best.memory is None:
        return None
    if not best.ranks:
        raise UsageError(
            "--plot ranks: of the best plan's ranks the worst alone is told; FSDP2, --tp and --ep tell all"
        )
    return memory_by_rank(best, titled=True)


def _write_timeline(args: argparse.Namespace, target: "PlotTarget", answer: "Answer") -> None:
    from gpu_plan.reports.plots.timeline_file import write_timeline

    if answer.timeline is None:
        say(f"nothing fits, so {target.path} was not written; --pin draws how it runs out")
        return
    write_timeline(answer.timeline, target.path, force=args.force)


def figure_of(
    kind: str,
    document: "PlanDocument",
    args: argparse.Namespace,
    words: Sequence[str],
    script_words: Sequence[str],
    progress: "Progress",
) -> "Figure | None":
    """A figure of a plan document; None where nothing fits.

    `args` made it, `words` are they as they are shown; further points are planned on top.
    """
    if kind in ("breakdown", "pareto"):
        from gpu_plan.reports.plots.memory import breakdown, pareto

        return breakdown(document, titled=True) if kind == "breakdown" else pareto(document, titled=True)
    if kind in ("stages", "bubble"):
        return _of_stages(kind, document)
    if kind == "ranks":
        return _of_ranks(document)
    from gpu_plan.planner.options.given.named import named, overlaid, shown_words
    from gpu_plan.planner.sweep.kinds import scaling_axes, sequence_axes, sequence_values
    from gpu_plan.reports.plots.sweep import curves

    if kind == "scaling":
        axes = scaling_axes(document)
        return curves(run(axes, args, _without(words, "--gpus"), script_words, progress).document, scaling=True)
    fixed = sequence_values(document)
    if fixed is None:
        return None
    job = named(fixed)
    whole = overlaid(args, job)
    whole.global_batch = whole.grad_accum = None
    left = _without(words, "--seq-len", "--micro-batch", "--global-batch", "--grad-accum", *(f"--{n}" for n in fixed))
    axes = sequence_axes(document)
    return curves(run(axes, whole, [*left, *shown_words(job)], script_words, progress).document)


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
