"""Options of the engines that place a job: SLURM and others; what they say together with the configuration."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import UsageError

if TYPE_CHECKING:
    from gpu_plan.executor.engines.engine import Engine, Settings

NAMES = ("slurm", "ray", "kubeflow", "kubernetes", "skypilot")
"""What `--set` keys of engines begin with."""
SHORT = ("partition", "time", "account", "address", "namespace", "image")
"""Options that are short for `--set ENGINE.KEY=VALUE`."""
_OF = {"address": "ray", "namespace": "kubeflow", "image": "kubeflow"}
"""Whose they are, where it is not SLURM's."""


def add_engine_options(parser: argparse._ActionsContainer) -> None:
    """`--partition`, `--time`, `--account`; `--address`; `--namespace`, `--image`."""
    parser.add_argument("--partition", metavar="P", help="SLURM's queue: --set slurm.partition=P")
    parser.add_argument("--time", metavar="T", help="limit of wall time, such as 12:00:00: --set slurm.time=T")
    parser.add_argument("--account", metavar="A", help="who pays: --set slurm.account=A")
    parser.add_argument("--address", metavar="A", help="Ray's cluster, http://HOST:8265: --set ray.address=A")
    parser.add_argument("--namespace", metavar="N", help="of Kubernetes: --set kubeflow.namespace=N")
    parser.add_argument("--image", metavar="I", help="container image: --set kubeflow.image=I")


def engine_settings(args: argparse.Namespace, engine: "Engine") -> "Settings":
    """What the command line and the nearest configuration say to the engine. As `read_settings` raises."""
    from gpu_plan.executor.engines.registry import engine_of_setting
    from gpu_plan.executor.engines.settings import read_settings
    from gpu_plan.planner.options.config import engine_table

    ours = [word for word in args.settings if engine_of_setting(word) == engine.name]
    args.settings = [word for word in args.settings if word not in ours]
    for word in args.settings:
        other = engine_of_setting(word)
        if other is not None:
            raise UsageError(f"--set {word} is for {other}, and this is for {engine.title}")
    table, where = engine_table(Path.cwd(), engine.name)
    options = {name: getattr(args, name) for name in SHORT}
    return read_settings(engine, ours, options, table, where)


def refuse_engine_options(args: argparse.Namespace, option: str) -> None:
    """UsageError for options of an engine where `option`, which names one, does not."""
    given = [(f"--{name}", _OF.get(name, "slurm")) for name in SHORT if getattr(args, name) is not None]
    heads = [(word, word.partition(".")[0]) for word in args.settings if "." in word]
    given += [(f"--set {word}", head) for word, head in heads if head in NAMES]
    if given:
        word, engine = given[0]
        raise UsageError(f"{word} is for an engine that gives the nodes: add {option} {engine}")


def refuse_what_engines_do(args: argparse.Namespace, engine: "Engine") -> None:
    """UsageError for options that say what the engine says itself."""
    for option, value in (("--hosts", args.hosts), ("--machine-rank", args.machine_rank)):
        if value is not None:
            raise UsageError(f"{option} names hosts, and {engine.title} gives them: leave it out")
    if str(args.execute).startswith("@"):
        raise UsageError(f"--on {engine.name} runs a training script, not {args.execute}")
