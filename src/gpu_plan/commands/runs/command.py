"""`plan runs`: the runs of this working directory, oldest first."""

import argparse
import sys
import time
from pathlib import Path

from gpu_plan.planner.errors import ExitCode
from gpu_plan.planner.visible import visible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan runs`."""
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def run(args: argparse.Namespace) -> int:
    """Lists what lies below runs/ in the working directory; a damaged run folder has its line too."""
    from gpu_plan.executor.read_run import Unreadable, read_all
    from gpu_plan.reports.run.as_json import render_runs_json
    from gpu_plan.reports.run.listing import RunLine, render_runs_text, run_line

    found = read_all(Path.cwd())
    lines = [
        RunLine(id=entry.run_id, status="unreadable", problem=entry.why)
        if isinstance(entry, Unreadable)
        else run_line(entry)
        for entry in found
    ]
    if args.json:
        sys.stdout.write(render_runs_json(lines) + "\n")
    elif not lines:
        print(
            visible(f"plan: there are no runs below {Path.cwd()}: `plan --execute SCRIPT` makes one"), file=sys.stderr
        )
    else:
        encodable = (sys.stdout.encoding or "").lower().startswith("utf")
        sys.stdout.write(render_runs_text(lines, time.time(), ascii_only=args.ascii or not encodable))
    return ExitCode.OK
