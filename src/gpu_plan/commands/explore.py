"""See in a terminal how a job's memory and time move with every option."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.parser import GPUS_HELP, add_job_options, add_unwalled, given_job_words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan explore`: those of the main job, and how the explorer shows itself."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="hub id, folder, config.json, package.module:factory, or a training script (train.py [-- ARGS])",
    )
    parser.add_argument("--gpus", metavar="SPEC", help=GPUS_HELP)
    add_job_options(parser)
    group = parser.add_argument_group("explorer")
    add_unwalled(group)
    group.add_argument("--plan", metavar="FILE", help="begin where a plan of --save or --json stands")
    group.add_argument(
        "--readonly", action="store_true", help="launch nothing; plans and reports are written where you name a file"
    )
    group.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    group.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")


TAKES_SCRIPT_WORDS = True
"""What stands after `--` belongs to the training script."""


def run(args: argparse.Namespace, script_words: Sequence[str] = ()) -> int:
    """Opens the explorer; UsageError where there is no terminal, no textual, or nothing to explore."""
    if importlib.util.find_spec("textual") is None:
        raise UsageError("the explorer needs textual, which is not installed: pip install 'gpu-plan[tui]'")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the explorer needs a terminal: plan MODEL --gpus SPEC prints the same figures")
    from gpu_plan.tui.start import explore, initial_state

    return explore(
        initial_state(args, given_job_words(args), script_words), ascii_only=args.ascii, readonly=args.readonly
    )
