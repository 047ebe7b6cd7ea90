"""`plan diff A B`: what sets two plans, or two memory snapshots, apart."""

import argparse
import sys
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import ExitCode, InputError, UnreachableError
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.plan.diff import Side, compare, side_of_document, side_of_saved
from gpu_plan.planner.plan.files import load_any
from gpu_plan.planner.plan.saved import SavedPlan

if TYPE_CHECKING:
    from gpu_plan.planner.snapshot.read import History


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan diff`."""
    parser.add_argument("before", metavar="A", help="a plan that --save or --json wrote")
    parser.add_argument("after", metavar="B", help="the plan to compare it with")
    parser.add_argument(
        "--snapshot",
        action="store_true",
        help="A is a memory snapshot that `plan --snapshot` predicted, B one that torch recorded",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def run(args: argparse.Namespace) -> int:
    """Compares two files. Raises InputError for one that is no plan, UnreachableError for one that is not there."""
    if args.snapshot:
        return _snapshots(args)
    from gpu_plan.reports.diff import render_json, render_text

    before, after = _side(args.before), _side(args.after)
    diff = compare(before, after)
    text = render_json(diff) + "\n" if args.json else render_text(diff, before, after, ascii_only=_ascii(args))
    sys.stdout.write(text)
    return ExitCode.OK


def _ascii(args: argparse.Namespace) -> bool:
    return args.ascii or not (sys.stdout.encoding or "").lower().startswith("utf")


def _snapshots(args: argparse.Namespace) -> int:
    from gpu_plan.planner.snapshot.diff import compare as compare_histories
    from gpu_plan.reports.snapshot.diff import render_json, render_text

    diff = compare_histories(_history(args.before), _history(args.after))
    sys.stdout.write(render_json(diff) + "\n" if args.json else render_text(diff, ascii_only=_ascii(args)))
    return ExitCode.OK


def _history(path: str) -> "History":
    from gpu_plan.planner.snapshot.read import MAX_BYTES, read_history

    try:
        content = read_bytes(path, MAX_BYTES + 1)
    except OSError as error:
        raise UnreachableError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**30} GiB; record a shorter history")
    return read_history(content, path)


def _side(path: str) -> Side:
    """The saved plan, or a document's best candidate; where nothing fits, the one that misses by least."""
    from gpu_plan.reports.plan.words import focus

    plan = load_any(path)
    return side_of_saved(plan, path) if isinstance(plan, SavedPlan) else side_of_document(plan, path, focus(plan))
