"""`plan export PLAN --to ENGINE`: writes the files and the command that launch a saved plan, and launches nothing."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.commands.execute.engines import SHORT, add_engine_options, engine_settings, refuse_engine_options
from gpu_plan.notes import say
from gpu_plan.planner.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpu_plan.executor.script.read import Script

_FOLDER = "launch"
_SCRIPT = "train.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan export`."""
    parser.add_argument("plan", metavar="PLAN", help="a plan that --save wrote")
    parser.add_argument(
        "--to",
        metavar="ENGINE",
        required=True,
        help="accelerate, deepspeed, torchrun, megatron-lm, megatron-bridge; slurm: a folder that it runs",
    )
    parser.add_argument(
        "--script", metavar="SCRIPT", help="the training script; default: train.py, which may be absent"
    )
    parser.add_argument("--hosts", metavar="A,B", help="one host per node")
    parser.add_argument("--machine-rank", metavar="N", help="which host the files are for; default: 0")
    add_engine_options(parser)
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help="slurm.KEY=VALUE, repeatable"
    )
    parser.add_argument("-o", "--output", metavar="DIR", help="folder to write into; default: launch")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def run(args: argparse.Namespace) -> int:
    """Writes the files and prints the command. Errors as reading a plan, a script, and writing raise them."""
    from gpu_plan.commands.execute.options import count, hosts_of
    from gpu_plan.commands.execute.shown import command_line
    from gpu_plan.executor.engines.export import export_to
    from gpu_plan.executor.engines.registry import find, is_engine
    from gpu_plan.executor.job import Job
    from gpu_plan.executor.launch.engines.registry import find_engine
    from gpu_plan.executor.launch.export import export
    from gpu_plan.executor.launch.write import write_launch_files
    from gpu_plan.planner.cache_dir import versions
    from gpu_plan.planner.plan.files import load
    from gpu_plan.planner.plan.saved import stale_reasons

    engine = None
    if is_engine(args.to):
        engine = find(args.to, "--to")
        settings = engine_settings(args, engine)
    else:
        find_engine(args.to)
        refuse_engine_options(args, "--to")
    if args.settings:
        raise UsageError(f"--set {args.settings[0]} is part of the plan: make it again with that setting")
    saved = load(args.plan)
    changed = stale_reasons(saved, versions=versions())
    if changed:
        say(f"{args.plan} holds where it was made, not here: {'; '.join(changed)}")
    hosts = hosts_of(args, saved) if args.hosts is not None else _unnamed(int(str(saved.cluster["nodes"])))
    rank = 0 if args.machine_rank is None else count(args.machine_rank, "--machine-rank")
    if rank >= max(1, len(hosts)):
        raise UsageError(f"--machine-rank {rank}: there are {max(1, len(hosts))} hosts, counted from 0")
    script = _script(args.script)
    folder = Path(args.output or _FOLDER).absolute()
    job = Job(
        saved=saved,
        script=Path(args.script or _SCRIPT),
        working_directory=Path.cwd(),
        hosts=hosts,
        machine_rank=rank,
        command=shlex.join(_words(args)),
    )
    if engine is not None:
        launch = export_to(job, script, engine=engine, settings=settings, folder=folder)
    else:
        launch = export(job, script, engine=args.to, folder=folder)
    for path in write_launch_files(launch, folder, force=args.force):
        say(f"wrote {path}")
    for line in launch.not_applied:
        say(f"not applied: {line}")
    sys.stdout.write((shlex.join(launch.command) if engine is not None else command_line(launch)) + "\n")
    return ExitCode.OK


def _words(args: argparse.Namespace) -> list[str]:
    words = ["plan", "export", args.plan, "--to", args.to]
    for option, value in (
        ("--script", args.script),
        ("--hosts", args.hosts),
        ("--machine-rank", args.machine_rank),
        *((f"--{name}", getattr(args, name)) for name in SHORT),
        *(("--set", word) for word in args.settings),
        ("-o", args.output),
    ):
        words += [] if value is None else [option, value]
    return words


def _unnamed(nodes: int) -> tuple[str, ...]:
    """Names to be replaced, where no hosts are given."""
    return tuple(f"node{number}" for number in range(nodes)) if nodes > 1 else ()


def _script(name: str | None) -> "Script | None":
    """The script that is named, or the one of the default name; None where neither is there."""
    from gpu_plan.executor.script.read import read_script

    path = Path(name or _SCRIPT)
    return None if name is None and not path.exists() else read_script(path)
