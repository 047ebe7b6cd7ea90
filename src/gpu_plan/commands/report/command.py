"""`plan report RUN`: what a run took, against what its plan predicted, per rank and phase.

A FILE that `plan check --format json` wrote is shown in any of that command's formats, one that holds a plan (`--save`,
`--json`) or a sweep in any of theirs, without planning again.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.commands.report.of_check import FORMATS
from gpu_plan.planner.errors import ExitCode, InputError, UsageError
from gpu_plan.planner.foreign.files import read_bytes

if TYPE_CHECKING:
    from gpu_plan.executor.records.whole import WholeRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan report`."""
    parser.add_argument(
        "run",
        metavar="RUN",
        help="a run's folder, its id or the start of it, or `latest`; or the JSON file of a check, a plan or a sweep",
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("--format", choices=(*FORMATS, "csv", "html"), default="text", help="default: text")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report there instead of stdout")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def run(args: argparse.Namespace) -> int:
    """Reports on one run. Raises UnreachableError for one that is not there, InputError for a damaged one."""
    given = Path(args.run)
    if given.suffix == ".json" and given.is_file():
        return _file_report(args, given)
    if args.format in ("junit", "github", "csv"):
        of = "a plan" if args.format == "csv" else "a check"
        raise UsageError(f"--format {args.format} is for the JSON file of {of}, not for a run")
    if args.format == "html" and not args.json:
        from gpu_plan.reports.requires import need_matplotlib

        need_matplotlib("--format html")
    from gpu_plan.executor.read_run import read_whole
    from gpu_plan.executor.run_folder import find

    _write(args, _rendered(args, read_whole(find(args.run, Path.cwd()))))
    return ExitCode.OK


def _rendered(args: argparse.Namespace, whole: "WholeRun") -> str:
    from gpu_plan.reports.run.compare import compare_run

    comparison = compare_run(whole)
    if args.json or args.format == "json":
        from gpu_plan.reports.run.as_json import render_run_json

        return render_run_json(whole, comparison) + "\n"
    if args.format == "md":
        from gpu_plan.reports.run.markdown import render_run_markdown

        return render_run_markdown(whole, comparison)
    if args.format == "html":
        from gpu_plan.reports.html.run import render_run_html

        return render_run_html(whole, comparison)
    from gpu_plan.reports.run.text import render_run_text

    encodable = args.output is not None or (sys.stdout.encoding or "").lower().startswith("utf")
    return render_run_text(whole, comparison, ascii_only=args.ascii or not encodable)


def _write(args: argparse.Namespace, text: str) -> None:
    if args.output is None:
        sys.stdout.write(text)
        return
    from gpu_plan.planner.plan.files import write_text

    write_text(args.output, text, force=args.force)


def _file_report(args: argparse.Namespace, path: Path) -> int:
    """Shows what a plan, a sweep or a check found; its exit code is not given again."""
    from gpu_plan.commands.report.kept import read_kept, rendered_file
    from gpu_plan.planner.plan.codec import MAX_BYTES

    try:
        content = read_bytes(path, MAX_BYTES + 1)
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    kept = read_kept(content, str(path))
    if kept is not None:
        _write(args, rendered_file(kept, args, path))
        return ExitCode.OK
    if args.format in ("html", "csv"):
        raise UsageError(
            f"--format {args.format} is for runs and plans; a check is shown as text, json, junit, md or github"
        )
    from gpu_plan.commands.report.of_check import rendered
    from gpu_plan.planner.regression.result import report_from_json

    report = report_from_json(content, str(path))
    _write(args, rendered(report, "json" if args.json else args.format, ascii_only=args.ascii))
    return ExitCode.OK
