"""`plan report RUN`: what a run took, against what its plan predicted, per rank and phase.

A FILE that `plan check --format json` wrote is shown in any of that command's formats.
"""

import argparse
import sys
from pathlib import Path

from planner.commands.check_output import FORMATS
from planner.errors import ExitCode, InputError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan report`."""
    parser.add_argument(
        "run", metavar="RUN", help="a run's folder, its id or the start of it, or `latest`; or a check's JSON file"
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("--format", choices=FORMATS, default="text", help="what is written to stdout")
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def run(args: argparse.Namespace) -> int:
    """Reports on one run. Raises UnreachableError for one that is not there, InputError for a damaged one."""
    given = Path(args.run)
    if given.suffix == ".json" and given.is_file():
        return _check_report(args, given)
    if args.format in ("junit", "github"):
        raise UsageError(f"--format {args.format} is for the JSON file of a check, not for a run")
    from executor.read_run import read_whole
    from executor.run_folder import find
    from reports.run_compare import compare_run

    whole = read_whole(find(args.run, Path.cwd()))
    comparison = compare_run(whole)
    if args.json or args.format == "json":
        from reports.run_json import render_run_json

        sys.stdout.write(render_run_json(whole, comparison) + "\n")
    elif args.format == "md":
        from reports.run_markdown import render_run_markdown

        sys.stdout.write(render_run_markdown(whole, comparison))
    else:
        from reports.run_text import render_run_text

        encodable = (sys.stdout.encoding or "").lower().startswith("utf")
        sys.stdout.write(render_run_text(whole, comparison, ascii_only=args.ascii or not encodable))
    return ExitCode.OK


def _check_report(args: argparse.Namespace, path: Path) -> int:
    """Shows what a check found; its exit code is not given again."""
    from planner.commands.check_output import rendered
    from planner.regression.result import report_from_json

    try:
        content = path.read_bytes()
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}") from None
    report = report_from_json(content, str(path))
    sys.stdout.write(rendered(report, "json" if args.json else args.format, ascii_only=args.ascii))
    return ExitCode.OK
