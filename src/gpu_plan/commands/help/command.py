"""`plan help [VERB]`: the options of the main job, or of a verb."""

import argparse

from gpu_plan.planner.errors import ExitCode, UsageError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.verbs import VERBS, verb_parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("verb", nargs="?", metavar="VERB", help="default: the main job, `plan MODEL --gpus SPEC`")


def run(args: argparse.Namespace) -> int:
    """Print to stdout; UsageError for a word that is not a verb."""
    if args.verb is None:
        from gpu_plan.planner.options.words import main_parser

        print(main_parser(VERBS).format_help(), end="")
        return ExitCode.OK
    if args.verb not in VERBS:
        near = did_you_mean(args.verb, list(VERBS), limit=1)
        raise UsageError(f"{args.verb!r} is not a verb.{near} `plan help` lists them")
    print(verb_parser(args.verb).format_help(), end="")
    return ExitCode.OK
