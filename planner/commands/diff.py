"""`plan diff A B`: what sets two plans apart, in what they were made for, in memory and in speed."""

import argparse
import sys

from planner.errors import ExitCode
from planner.plan_diff import Side, compare, side_of_document, side_of_saved
from planner.plan_io import load_any
from planner.plan_saved import SavedPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan diff`."""
    parser.add_argument("before", metavar="A", help="a plan that --save or --json wrote")
    parser.add_argument("after", metavar="B", help="the plan to compare it with")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def run(args: argparse.Namespace) -> int:
    """Compares two files. Raises InputError for one that is no plan, UnreachableError for one that is not there."""
    from reports.diff import render_json, render_text

    before, after = _side(args.before), _side(args.after)
    diff = compare(before, after)
    if args.json:
        sys.stdout.write(render_json(diff) + "\n")
    else:
        encodable = (sys.stdout.encoding or "").lower().startswith("utf")
        sys.stdout.write(render_text(diff, before, after, ascii_only=args.ascii or not encodable))
    return ExitCode.OK


def _side(path: str) -> Side:
    """The saved plan, or a document's best candidate; where nothing fits, the one that misses by least."""
    from reports.words import focus

    plan = load_any(path)
    return side_of_saved(plan, path) if isinstance(plan, SavedPlan) else side_of_document(plan, path, focus(plan))
