"""What a job's options say about output: checked before the work, written after it."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpu_plan.notes import say
from gpu_plan.planner.errors import UsageError

if TYPE_CHECKING:
    from gpu_plan.planner.options.request import Answer
    from gpu_plan.planner.plan.document import PlanDocument
    from gpu_plan.planner.plan.timeline import Timeline
    from gpu_plan.reports.plots.targets import PlotTarget


def plot_targets(args: argparse.Namespace) -> "list[PlotTarget]":
    """What --plot asks for; UsageError for what cannot be drawn."""
    if not args.plot:
        return []
    from gpu_plan.reports.plots.targets import read_target

    return [read_target(text, sweeping=bool(args.sweep)) for text in args.plot]


def form_of(args: argparse.Namespace) -> str:
    """The form of the report: `text`, `json`, `md`, `csv` or `html`."""
    return "json" if args.json else args.format or "text"


def check_targets(args: argparse.Namespace) -> None:
    """Output files are refused before the work, not after it."""
    plots = [("--plot", target.path) for target in plot_targets(args)]
    seen: set[str] = set()
    files = [("--save", args.save), ("--snapshot", args.snapshot), ("--timeline", args.timeline)]
    if args.timeline is not None and args.sweep:
        raise UsageError("--timeline is of one plan: leave out --sweep")
    if args.timeline is not None and args.task == "infer":
        raise UsageError("--timeline is of a training step: leave it out with --task infer")
    for option, target in (("-o", args.output), *files, *plots):
        if target is None:
            continue
        folder = os.path.dirname(os.path.abspath(target))
        if not os.path.isdir(folder):
            raise UsageError(f"{option} {target}: the folder {folder} does not exist")
        if os.path.isdir(target):
            raise UsageError(f"{option} {target} is a folder: name a file")
        if os.path.exists(target) and not args.force:
            raise UsageError(f"{option} {target} exists: add --force to overwrite it")
        if os.path.abspath(target) in seen and not target.startswith("/dev/"):
            raise UsageError(f"{option} {target}: another output is written there already")
        seen.add(os.path.abspath(target))
    if plots and args.task == "infer" and not args.sweep:
        _check_generation_plots(args)
    if args.json and args.format not in (None, "json"):
        raise UsageError(f"--json and --format {args.format} contradict each other")
    if form_of(args) in ("csv", "html"):
        from gpu_plan.reports.requires import need_matplotlib, need_pandas

        (need_pandas if args.format == "csv" else need_matplotlib)(f"--format {args.format}")


def _check_generation_plots(args: argparse.Namespace) -> None:
    for target in plot_targets(args):
        if target.kind in ("timeline", "sequence"):
            raise UsageError(f"--plot {target.kind} draws a training step; of --task infer: breakdown, pareto, scaling")


def write_report(
    args: argparse.Namespace,
    document: "PlanDocument",
    top: int,
    timeline: "Timeline | None" = None,
    schedule: Mapping[str, Any] | None = None,
) -> None:
    """Prints or writes the document in the form that was asked for, and saves its best plan where it is to be.

    `timeline`, `schedule`: of the best plan's step, where the form shows it."""
    form = form_of(args)
    if form == "json":
        from gpu_plan.reports.plan.as_json import render_json

        text = render_json(document)
    elif form == "md":
        from gpu_plan.reports.plan.markdown import render_markdown

        text = render_markdown(document, top=top, explain=args.explain)
    elif form == "csv":
        from gpu_plan.reports.tables.as_csv import render_csv

        text = render_csv(document)
    elif form == "html":
        from gpu_plan.planner.plan.drawn.lanes import lanes_of
        from gpu_plan.reports.html.render import render_html

        lanes = () if schedule is None else lanes_of(schedule)
        text = render_html(document, timeline=timeline, lanes=lanes, top=top)
    else:
        text = _terminal(args, document, top)
    if args.save is not None:
        save_best(args, document)
    write_out(args, text)


def write_schedule(args: argparse.Namespace, answer: "Answer") -> None:
    """The expected step for Chrome's tracing, where something is planned."""
    from gpu_plan.planner.plan.files import write_text

    if answer.schedule is None:
        say(f"nothing fits, so {args.timeline} was not written; --pin writes it all the same")
        return
    write_text(args.timeline, json.dumps(answer.schedule) + "\n", force=args.force)


def write_out(args: argparse.Namespace, text: str) -> None:
    """The report to the file of -o, else to stdout; it ends with a newline."""
    whole = text if text.endswith("\n") else text + "\n"
    if args.output is not None:
        from gpu_plan.planner.plan.files import write_text

        write_text(args.output, whole, force=args.force)
    else:
        sys.stdout.write(whole)
        sys.stdout.flush()


def _terminal(args: argparse.Namespace, document: "PlanDocument", top: int) -> str:
    from gpu_plan.reports.plan.terminal import render_terminal

    width, ascii_only, color = screen_of(args)
    return render_terminal(document, width=width, ascii_only=ascii_only, color=color, top=top, explain=args.explain)


def screen_of(args: argparse.Namespace) -> tuple[int, bool, bool]:
    """Columns of whatever a text goes to, whether it takes ASCII alone, and whether it shows colours."""
    import shutil

    from gpu_plan.reports.plan.terminal import wants_color

    to_terminal = args.output is None and sys.stdout.isatty()
    encodable = args.output is not None or (sys.stdout.encoding or "").lower().startswith("utf")
    return (
        shutil.get_terminal_size((100, 24)).columns,
        args.ascii or not encodable,
        wants_color(os.environ, to_terminal),
    )


def save_best(args: argparse.Namespace, document: "PlanDocument") -> None:
    """Writes the best plan to the file of --save, or says that there is none."""
    from gpu_plan.planner.plan.files import save
    from gpu_plan.planner.plan.saved import saved_plan

    if document.best is None:
        say(f"nothing fits, so {args.save} was not written")
        return
    save(saved_plan(document), args.save, force=args.force)


def write_snapshot_of(args: argparse.Namespace, answer: "Answer") -> None:
    """Writes the predicted memory snapshot to the file of --snapshot, or says that nothing fits."""
    from gpu_plan.reports.snapshot.file import write_snapshot

    if answer.snapshot is None:
        say(f"nothing fits, so {args.snapshot} was not written; --pin shows how it runs out")
        return
    write_snapshot(answer.snapshot, args.snapshot, force=args.force)
