"""`plan cancel RUN`: ends a run, at the engine that has it or on this machine."""

import argparse
import sys
from pathlib import Path

from gpu_plan.notes import say
from gpu_plan.planner.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan cancel`."""
    parser.add_argument("run", metavar="RUN", help="a run's id or the start of one, its folder, or `latest`")


def run(args: argparse.Namespace) -> int:
    """Asks for the end and says what was done. UsageError for a run that is over; errors as finding a run raises."""
    from gpu_plan.executor.engines.end import cancel, settled
    from gpu_plan.executor.run_folder import find

    folder = find(args.run, Path.cwd())
    say(cancel(folder))
    record = settled(folder)
    sys.stdout.write(f"{record.run_id} {record.status}\n")
    return ExitCode.OK
