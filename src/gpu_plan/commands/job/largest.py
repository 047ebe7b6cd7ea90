"""`plan MODEL --gpus SPEC --max OPTION`: the largest value of an option that fits."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_plan.commands.job.asking import Notes, request_of
from gpu_plan.planner.errors import ExitCode
from gpu_plan.planner.visible import visible

if TYPE_CHECKING:
    from gpu_plan.planner.job.largest import Largest


def tell_largest(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Prints one line, or JSON; exit code 1 where nothing fits."""
    from gpu_plan.planner.job.largest import find_largest

    found = find_largest(request_of(args, words), _option(args.largest), Notes())
    if args.json or args.format == "json":
        document = {
            "schema_version": 1,
            "model": args.model,
            "gpus": args.gpus,
            "option": found.option,
            "value": found.value,
            "plan": found.plan,
            "unbounded": found.unbounded,
            "beyond": list(found.beyond),
        }
        sys.stdout.write(json.dumps(document) + "\n")
    elif found.option == "model":
        print(visible(_model_words(found, args.gpus)))
    elif found.value is None:
        print(visible(f"nothing fits {args.gpus} even with --{found.option} {found.smallest}"))
    else:
        beyond = ": the most that is asked about" if found.unbounded else ""
        print(visible(f"--{found.option} {found.value} is the largest that fits {args.gpus}{beyond}: {found.plan}"))
    return ExitCode.NOTHING_FITS if found.value is None else ExitCode.OK


def _option(word: str) -> str:
    """`seq_len`, `--seq-len` and `Seq-Len` are one option."""
    return word.strip().lower().removeprefix("--").replace("_", "-")


def _model_words(found: "Largest", gpus: str) -> str:
    if found.value is None:
        return f"no model of the family fits {gpus}: not even {found.smallest}"
    beyond = f"; beyond it: {', '.join(reversed(found.beyond))}" if found.beyond else ", and the largest there is"
    return f"{found.value} is the largest of its family that fits {gpus}{beyond}: {found.plan}"
