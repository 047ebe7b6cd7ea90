"""`plan MODEL --gpus SPEC --max OPTION`: the largest value of an option that fits."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_plan.commands.job.asking import Notes, option_word, request_of
from gpu_plan.planner.errors import ExitCode
from gpu_plan.planner.visible import visible

if TYPE_CHECKING:
    from gpu_plan.planner.job.largest import Largest


def tell_largest(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Prints the largest and why the next does not fit, or JSON; exit code 1 where nothing fits."""
    from gpu_plan.planner.job.largest import find_largest

    found = find_largest(request_of(args, words), option_word(args.largest), Notes())
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
            "fails_at": found.fails_at,
            "reason": found.reason,
            "spread": None if found.offloads else found.spread,
            "offloading": found.spread if found.offloads else None,
            "positions": found.positions,
        }
        sys.stdout.write(json.dumps(document) + "\n")
    elif found.option == "model":
        for line in _model_lines(found, args.gpus, of_family=args.model is not None):
            print(visible(line))
    elif found.value is None:
        why = "" if found.reason is None else f": {found.reason}"
        print(visible(f"nothing fits {args.gpus} even with --{found.option} {found.smallest}{why}"))
    else:
        beyond = ": the most that is asked about" if found.unbounded else ""
        where = f"{args.gpus}{_over(found)}{beyond}"
        print(visible(f"--{found.option} {found.value} is the largest that fits {where}: {found.plan}"))
        if found.positions is not None:
            longer = f"longer than the {found.positions:,} positions of {args.model}"
            print(visible(f"--{found.option} {found.value} is {longer}: memory has room, the model may not"))
        if found.offloads:
            print(visible(f"--{found.option} {found.fails_at} fits in the node's RAM alone: {found.spread}"))
        elif found.spread is not None:
            print(
                visible(
                    f"--{found.option} {found.fails_at} fits with a copy over several GPUs alone: {found.spread}"
                    " (give its degree, as in --cp 8, and --max goes on from there)"
                )
            )
        elif found.fails_at is not None and found.reason is not None:
            print(visible(f"--{found.option} {found.fails_at} does not fit: {found.reason}"))
    return ExitCode.NOTHING_FITS if found.value is None else ExitCode.OK


def _over(found: "Largest") -> str:
    if found.offloads:
        return " without offloading"
    return "" if found.spread is None else " with a whole copy on each"


def _model_lines(found: "Largest", gpus: str, *, of_family: bool) -> list[str]:
    why = "" if found.reason is None else f": {found.reason}"
    alone = "" if of_family else " without offloading"
    if found.value is None:
        whose = "of the family" if of_family else "of the catalog"
        return [f"no model {whose} fits {gpus}{alone}: not even {found.smallest}{why}"]
    there = "" if found.beyond or not of_family else ", and the largest there is"
    whose = "of its family" if of_family else "decoder of the catalog"
    told = f"{found.value} is the largest {whose} that fits {gpus}{alone}{there}: {found.plan}"
    if not found.beyond:
        return [told]
    more = f"; nor do {', '.join(reversed(found.beyond[:-1]))}" if found.beyond[1:] else ""
    return [told, f"{found.beyond[-1]} does not fit{why}{more}"]
