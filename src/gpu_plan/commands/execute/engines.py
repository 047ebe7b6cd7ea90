"""Options of the engines that place a job: SLURM and others; what they say together with the configuration."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import UsageError

if TYPE_CHECKING:
    from gpu_plan.executor.engines.engine import Engine, Settings

SHORT = ("partition", "time", "account")
"""Options that are short for `--set ENGINE.KEY=VALUE`."""


def add_engine_options(parser: argparse._ActionsContainer) -> None:
    """`--partition`, `--time`, `--account`."""
    parser.add_argument("--partition", metavar="P", help="SLURM's queue: --set slurm.partition=P")
    parser.add_argument("--time", metavar="T", help="limit of wall time, such as 12:00:00: --set slurm.time=T")
    parser.add_argument("--account", metavar="A", help="who pays: --set slurm.account=A")


def engine_settings(args: argparse.Namespace, engine: "Engine") -> "Settings":
    """What the command line and the nearest configuration say to the engine. As `read_settings` raises."""
    from gpu_plan.executor.engines.settings import read_settings, split_off
    from gpu_plan.planner.options.config import engine_table

    ours, others = split_off(args.settings, (engine.name,))
    if others:
        raise UsageError(f"--set {others[0]} is not for {engine.title}: write {engine.name}.KEY=VALUE")
    table, where = engine_table(Path.cwd(), engine.name)
    options = {name: getattr(args, name) for name in SHORT}
    return read_settings(engine, ours, options, table, where)


def refuse_engine_options(args: argparse.Namespace) -> None:
    """UsageError for options of an engine where there is none."""
    for name in SHORT:
        if getattr(args, name) is not None:
            raise UsageError(f"--{name} is for an engine that places the job, such as slurm")
    if getattr(args, "settings", None):
        raise UsageError(f"--set {args.settings[0]} is for an engine that places the job, such as slurm")
