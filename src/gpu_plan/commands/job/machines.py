"""`plan MODEL` without --gpus: the machines on which the job fits."""

import argparse
import sys
from collections.abc import Sequence

from gpu_plan.commands.job.asking import Notes, request_of
from gpu_plan.planner.errors import ExitCode, UsageError


def compare_machines(args: argparse.Namespace, words: Sequence[str], top: int) -> int:
    """Prints the table, or JSON; exit code 1 where no machine does."""
    from gpu_plan.planner.job.machines import find_machines
    from gpu_plan.planner.plan.machines import machines_to_json
    from gpu_plan.reports.machines.text import render_machines

    for option, value in (
        ("--save", args.save),
        ("--plot", args.plot),
        ("--snapshot", args.snapshot),
        ("--timeline", args.timeline),
    ):
        if value:
            raise UsageError(f"{option} is about one cluster: add --gpus")
    if args.output is not None or args.format not in (None, "text", "json"):
        raise UsageError("machines are compared as text or --json, on stdout: add --gpus for a report of one")
    args.gpus = "1xH100"
    request = request_of(args, words)
    specs = [spec.strip() for spec in (args.machines or "").split(",") if spec.strip()]
    document = find_machines(request, specs, Notes())
    as_json = args.json or args.format == "json"
    text = machines_to_json(document) + "\n" if as_json else render_machines(document, top=top, ascii_only=args.ascii)
    sys.stdout.write(text)
    return ExitCode.OK if document.machines else ExitCode.NOTHING_FITS
