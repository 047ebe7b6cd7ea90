"""`plan convert CHECKPOINT --to STRATEGY`: a checkpoint that another strategy, or another number of ranks, can load."""

import argparse
import os
import sys
from pathlib import Path

from gpu_plan.notes import say
from gpu_plan.planner.errors import ExitCode, InputError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan convert`."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a folder with a plan-checkpoint.json")
    parser.add_argument("--to", metavar="STRATEGY", required=True, help="the strategy that is to load it")
    parser.add_argument("--ranks", metavar="N", help="how many ranks are to load it; default: as many as saved it")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the new folder; default: beside CHECKPOINT, CHECKPOINT-as-STRATEGY-N"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the folder to load: the new one, or CHECKPOINT where that is read as it stands.

    InputError where it is not complete or no converter makes what is asked for, UsageError for a folder that is there,
    PreflightError where the disk is too small or converting fails; no folder is left behind then.
    """
    from gpu_plan.executor.checkpoints.find import open_checkpoint
    from gpu_plan.executor.checkpoints.resume import convert_into, converted_name, decide_resume

    one_device = _one_device(args.to)
    checkpoint = open_checkpoint(Path(args.checkpoint))
    ranks = _ranks(args.ranks, 1 if one_device else checkpoint.manifest.world_size)
    if one_device and ranks > 1:
        raise UsageError(f"--ranks {ranks}: {args.to} runs on one")
    found = decide_resume(checkpoint, args.to, ranks)
    if found.refused is not None:
        raise InputError(f"{args.checkpoint} cannot be converted for {args.to} on {ranks} ranks: {found.refused}")
    for note in found.notes:
        say(note)
    wanted = found.conversion
    if wanted is None:
        say(f"{args.checkpoint} is read by {args.to} on {ranks} ranks as it stands: nothing was written")
        sys.stdout.write(f"{checkpoint.path}\n")
        return ExitCode.OK
    target = Path(args.output) if args.output else checkpoint.path.with_name(converted_name(checkpoint.path, wanted))
    if os.path.exists(target):
        raise UsageError(f"{target} is there already: name another folder with -o")
    made = convert_into(checkpoint, wanted, target)
    before = f"{checkpoint.manifest.strategy} on {checkpoint.manifest.world_size}"
    say(f"step {checkpoint.manifest.step}, saved under {before}, for {wanted.strategy} on {wanted.world_size}")
    sys.stdout.write(f"{made}\n")
    return ExitCode.OK


def _one_device(strategy: str) -> bool:
    """Whether it is a strategy for one rank alone. UsageError for none that this version knows."""
    from gpu_plan.planner.nearest import did_you_mean
    from gpu_plan.planner.strategy.known import known_traits, strategies

    traits = known_traits(strategy)
    if traits is None:
        known = strategies()
        raise UsageError(f"--to {strategy!r} is not a strategy: use {', '.join(known)}.{did_you_mean(strategy, known)}")
    return traits.one_device


def _ranks(text: str | None, saved: int) -> int:
    if text is None:
        return saved
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1_000_000):
        raise UsageError(f"--ranks {text!r} is not a number of 1 or more")
    return int(text)
