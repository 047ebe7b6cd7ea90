"""The main job: `plan MODEL --gpus SPEC [options]`."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner import __version__
from planner.errors import ExitCode, UnreachableError, UsageError
from planner.options import (
    given_job_words,
    join_negative,
    main_parser,
    positive,
    refuse_what_is_not_built,
    unknown_options,
)
from planner.verbs import LATER_VERBS, VERBS

if TYPE_CHECKING:
    from planner.plan import PlanDocument
    from planner.plan_timeline import Timeline
    from planner.request import Answer, Request
    from reports.plots import PlotTarget


def run_words(words: Sequence[str], script_words: Sequence[str]) -> int:
    """Parses the main job's words and runs it; gives the exit code."""
    parser = main_parser()
    args, unknown = parser.parse_known_args(join_negative(words))
    if args.version:
        print(f"plan {__version__}")
        return ExitCode.OK
    if unknown:
        raise unknown_options(parser, unknown)
    if args.model is None and len(words) == 0:
        parser.print_help()
        return ExitCode.OK
    refuse_what_is_not_built(args)
    if args.execute is not None:
        from planner.commands.execute import execute

        return execute(args, words, script_words)
    _check_nothing_to_run(args, script_words)
    return _run(args, words, script_words)


def _check_nothing_to_run(args: argparse.Namespace, script_words: Sequence[str]) -> None:
    """UsageError for options that say something about a script that there is not."""
    if script_words and not str(args.model).endswith(".py"):
        raise UsageError("arguments after -- belong to a script: name it with --execute SCRIPT, or as MODEL")
    for option, value in (
        ("--plan", args.plan),
        ("--dry-run", args.dry_run or None),
        ("--hosts", args.hosts),
        ("--machine-rank", args.machine_rank),
        ("--max-restarts", args.max_restarts),
    ):
        if value is not None:
            raise UsageError(f"{option} is about a script that runs: add --execute SCRIPT")


def _run(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str]) -> int:
    if args.sweep:
        from planner.commands.sweep import sweep

        return sweep(args, words, script_words)
    check_subject(args)
    top = positive(args.top, "--top") or 5
    check_targets(args)
    answer = find_plans(args, words, script_words)
    write_report(args, answer.document, top, answer.timeline)
    if args.snapshot is not None:
        _write_snapshot(args, answer)
    if args.plot:
        from planner.commands.plots import write_plots

        write_plots(args, answer, words, script_words)
    return ExitCode.OK if any(plan.fits for plan in answer.document.plans) else ExitCode.NOTHING_FITS


def check_subject(args: argparse.Namespace) -> None:
    """UsageError unless it is said what is planned, and for which GPUs."""
    if args.model is None and args.named_model is not None:
        raise UsageError(f"which script is --model {args.named_model} compared with? plan train.py --model ...")
    if args.model is None:
        raise UsageError("which model? name a hub id, folder, config.json or package.module:factory")
    if args.named_model is not None and not args.model.endswith(".py"):
        raise UsageError(f"--model goes with a training script: plan train.py --model {args.named_model}")
    if args.gpus is None:
        verb = _verb_like(args.model)
        if verb is not None:
            raise UsageError(f"{args.model} is no verb. Did you mean plan {verb}? To plan a model, add --gpus")
        raise UsageError(f"which GPUs? add --gpus, such as: plan {args.model} --gpus 8xH100")


def find_plans(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str] = ()) -> "Answer":
    """Runs the main job for parsed options; `words` are the command line that is kept with the answer.

    `script_words` are the arguments of the training script, where one is what is planned.
    """
    from planner.job import run_job

    try:
        return run_job(request_of(args, words, script_words), Notes())
    except UnreachableError as problem:
        verb = _verb_like(args.model)
        hint = "" if verb is None else f" Or did you mean the verb: plan {verb}?"
        raise UnreachableError(f"{problem}{hint}") from None


def request_of(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str] = ()) -> "Request":
    """What parsed options ask for; arguments as of `find_plans`."""
    # transformers' own log lines would stand between ours; who wants them says so in this variable.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from planner.request import Request

    return Request(
        model=args.named_model or args.model,
        script=args.model if args.named_model else None,
        gpus=args.gpus,
        words=given_job_words(args),
        settings=tuple(args.settings),
        pinned=args.pin,
        explain=args.explain,
        trust_remote_code=args.trust_remote_code,
        revision=args.revision,
        use_cache=not args.no_cache,
        command="plan "
        + " ".join(shlex.quote(word) for word in (*words, *(("--", *script_words) if script_words else ()))),
        snapshot=args.snapshot is not None,
        plot=any(target.kind == "timeline" for target in plot_targets(args)),
        timeline=form_of(args) == "html",
        script_words=tuple(script_words),
    )


def plot_targets(args: argparse.Namespace) -> "list[PlotTarget]":
    """What --plot asks for; UsageError for what cannot be drawn."""
    if not args.plot:
        return []
    from reports.plots import read_target

    return [read_target(text, sweeping=bool(args.sweep)) for text in args.plot]


def form_of(args: argparse.Namespace) -> str:
    """The form of the report: `text`, `json`, `md`, `csv` or `html`."""
    return "json" if args.json else args.format or "text"


def _verb_like(word: str) -> str | None:
    """The verb that `word` nearly is, if any; a word with a slash, dot or colon names a model."""
    if set(word) & set("/.:") or os.path.exists(word):
        return None
    import difflib

    close = difflib.get_close_matches(word, (*VERBS, *LATER_VERBS), n=1, cutoff=0.75)
    return close[0] if close else None


class Notes:
    """Prints each note once; progress is for people at a terminal, what was repaired is for everyone."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        if text in self._said:
            return
        self._said.add(text)
        if not text.startswith("tracing"):
            print(f"plan: note: {text}", file=sys.stderr)
        elif sys.stderr.isatty():
            print(f"plan: {text} ...", file=sys.stderr)


def check_targets(args: argparse.Namespace) -> None:
    """Output files are refused before the work, not after it."""
    plots = [("--plot", target.path) for target in plot_targets(args)]
    seen: set[str] = set()
    for option, target in (("-o", args.output), ("--save", args.save), ("--snapshot", args.snapshot), *plots):
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
        from reports.requires import need_matplotlib, need_pandas

        (need_pandas if args.format == "csv" else need_matplotlib)(f"--format {args.format}")


def _check_generation_plots(args: argparse.Namespace) -> None:
    for target in plot_targets(args):
        if target.kind in ("timeline", "sequence"):
            raise UsageError(f"--plot {target.kind} draws a training step; of --task infer: breakdown, pareto, scaling")


def write_report(
    args: argparse.Namespace, document: "PlanDocument", top: int, timeline: "Timeline | None" = None
) -> None:
    """Prints or writes the document in the form that was asked for, and saves its best plan where it is to be."""
    form = form_of(args)
    if form == "json":
        from reports.json_report import render_json

        text = render_json(document)
    elif form == "md":
        from reports.markdown import render_markdown

        text = render_markdown(document, top=top, explain=args.explain)
    elif form == "csv":
        from reports.csv_report import render_csv

        text = render_csv(document)
    elif form == "html":
        from reports.html import render_html

        text = render_html(document, timeline=timeline, top=top)
    else:
        text = _terminal(args, document, top)
    if args.save is not None:
        save_best(args, document)
    write_out(args, text)


def write_out(args: argparse.Namespace, text: str) -> None:
    """The report to the file of -o, else to stdout; it ends with a newline."""
    whole = text if text.endswith("\n") else text + "\n"
    if args.output is not None:
        from planner.plan_io import write_text

        write_text(args.output, whole, force=args.force)
    else:
        sys.stdout.write(whole)
        sys.stdout.flush()


def _terminal(args: argparse.Namespace, document: "PlanDocument", top: int) -> str:
    import shutil

    from reports.terminal import render_terminal, wants_color

    to_terminal = args.output is None and sys.stdout.isatty()
    encodable = args.output is not None or (sys.stdout.encoding or "").lower().startswith("utf")
    width = shutil.get_terminal_size((100, 24)).columns
    return render_terminal(
        document,
        width=width,
        ascii_only=args.ascii or not encodable,
        color=wants_color(os.environ, to_terminal),
        top=top,
        explain=args.explain,
    )


def save_best(args: argparse.Namespace, document: "PlanDocument") -> None:
    """Writes the best plan to the file of --save, or says that there is none."""
    from planner.plan_io import save
    from planner.plan_saved import saved_plan

    if document.best is None:
        print(f"plan: note: nothing fits, so {args.save} was not written", file=sys.stderr)
        return
    save(saved_plan(document), args.save, force=args.force)


def _write_snapshot(args: argparse.Namespace, answer: "Answer") -> None:
    from reports.snapshot import write_snapshot

    if answer.snapshot is None:
        print(
            f"plan: note: nothing fits, so {args.snapshot} was not written; --pin shows how it runs out",
            file=sys.stderr,
        )
        return
    write_snapshot(answer.snapshot, args.snapshot, force=args.force)
