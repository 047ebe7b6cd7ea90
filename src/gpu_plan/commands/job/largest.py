"""`plan MODEL --gpus SPEC --max OPTION`: the largest value of an option that fits."""

import argparse
import json
import sys
from collections.abc import Sequence

from gpu_plan.commands.job.asking import Notes, request_of
from gpu_plan.planner.errors import ExitCode
from gpu_plan.planner.visible import visible


def tell_largest(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Prints one line, or JSON; exit code 1 where nothing fits."""
    from gpu_plan.planner.job.largest import find_largest

    found = find_largest(request_of(args, words), args.largest.strip().lower().removeprefix("--"), Notes())
    if args.json or args.format == "json":
        document = {
            "schema_version": 1,
            "model": args.model,
            "gpus": args.gpus,
            "option": found.option,
            "value": found.value,
            "plan": found.plan,
            "unbounded": found.unbounded,
        }
        sys.stdout.write(json.dumps(document) + "\n")
    elif found.value is None:
        print(visible(f"nothing fits {args.gpus} even with --{found.option} {found.smallest}"))
    else:
        beyond = ": the most that is asked about" if found.unbounded else ""
        print(visible(f"--{found.option} {found.value} is the largest that fits {args.gpus}{beyond}: {found.plan}"))
    return ExitCode.NOTHING_FITS if found.value is None else ExitCode.OK
