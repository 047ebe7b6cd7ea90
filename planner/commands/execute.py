"""`plan ... --execute SCRIPT`: finds or reads the plan, checks that it still holds, and launches it."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import ExitCode, UsageError
from planner.options import positive

if TYPE_CHECKING:
    from executor.job import Job
    from executor.launch.files import LaunchFiles
    from planner.plan_saved import SavedPlan


def execute(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str]) -> int:
    """Launches the job and gives its exit code; with --dry-run shows what would be launched."""
    from executor.job import Job
    from executor.script.read import read_script

    _check_options(args)
    script = Path(args.execute).absolute()
    read_script(script)
    saved = _saved(args, words)
    if saved is None:
        return ExitCode.NOTHING_FITS
    restarts = 3 if args.max_restarts is None else _count(args.max_restarts, "--max-restarts")
    job = Job(
        saved=saved,
        script=script,
        arguments=tuple(script_words),
        working_directory=Path.cwd(),
        max_restarts=restarts,
        hosts=_hosts(args, saved),
        machine_rank=_machine_rank(args),
        command=shlex.join(["plan", *words, *(["--", *script_words] if script_words else [])]),
    )
    return _show(job) if args.dry_run else _launch(job)


def _check_options(args: argparse.Namespace) -> None:
    if args.json or args.format is not None or args.output is not None or args.snapshot is not None:
        raise UsageError("--json, --format, -o and --snapshot are for plans that are looked at: leave out --execute")
    if args.plan is None:
        return
    for option, value in (("MODEL", args.model), ("--gpus", args.gpus), ("--pin", args.pin or None)):
        if value is not None:
            raise UsageError(f"--plan {args.plan} says what to run: leave out {option}, or --plan")


def _saved(args: argparse.Namespace, words: Sequence[str]) -> "SavedPlan | None":
    """The plan of --plan, or the best one found; None where nothing fits, which is then shown."""
    if args.plan is not None:
        from planner.plan_io import load

        return load(args.plan)
    from planner.commands.plan import check_targets, find_plans, save_best, write_report
    from planner.plan_saved import saved_plan

    check_targets(args)
    document = find_plans(args, words).document
    if document.best is None:
        write_report(args, document, positive(args.top, "--top") or 5)
        return None
    if args.save is not None:
        save_best(args, document)
    return saved_plan(document)


def _count(text: str, option: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise UsageError(f"{option} {text!r} is not a number of 0 or more")
    return int(text)


def _hosts(args: argparse.Namespace, saved: "SavedPlan") -> tuple[str, ...]:
    nodes = int(str(saved.cluster["nodes"]))
    hosts = tuple(host.strip() for host in (args.hosts or "").split(",") if host.strip())
    if args.hosts is not None and len(hosts) != nodes:
        noun = "node" if nodes == 1 else "nodes"
        raise UsageError(f"--hosts {args.hosts}: the plan is for {nodes} {noun}, this names {len(hosts)}")
    if nodes > 1 and not hosts:
        raise UsageError(f"the plan is for {nodes} nodes: name them with --hosts, and run the same command on each")
    return hosts


def _machine_rank(args: argparse.Namespace) -> int:
    """Which node this is: as told, or as SLURM and other schedulers say."""
    if args.machine_rank is not None:
        return _count(args.machine_rank, "--machine-rank")
    for name in ("SLURM_NODEID", "NODE_RANK"):
        if os.environ.get(name):
            return _count(os.environ[name], name)
    return 0


def _show(job: "Job") -> int:
    from executor.launch.prepare import prepare
    from executor.run_folder import RunFolder

    folder = RunFolder(job.working_directory / "runs" / "RUN")
    launch = prepare(job, attempt=1, folder=folder, resume_from=None)
    sys.stdout.write(shown(launch))
    _say_what_is_not_applied(launch)
    return ExitCode.OK


def shown(launch: "LaunchFiles") -> str:
    """Every file in full, then the command."""
    parts = [f"# ---- {name}\n{content.rstrip()}\n" for name, content in launch.files.items()]
    return "\n".join([*parts, f"# ---- command\n{command_line(launch)}\n"])


def command_line(launch: "LaunchFiles") -> str:
    """The whole launch command, with its environment, as a shell takes it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(launch.environment.items())]
    return " ".join([*variables, shlex.join(launch.command)])


def _say_what_is_not_applied(launch: "LaunchFiles") -> None:
    for line in launch.not_applied:
        print(f"plan: note: not applied: {line}", file=sys.stderr)


def _launch(job: "Job") -> int:
    from executor.supervise.supervisor import supervise

    record = supervise(job)
    return record.exit_code if record.exit_code is not None else 125
