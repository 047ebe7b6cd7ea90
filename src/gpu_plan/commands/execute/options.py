"""Options of `--execute`: what the project's configuration adds, which host this is, what contradicts what."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.config import JobOptions, job_options
from gpu_plan.planner.options.given.configured import configured
from gpu_plan.planner.options.given.named import Named, namespace, shown_words
from gpu_plan.planner.options.parser import COMPILED

if TYPE_CHECKING:
    from gpu_plan.executor.supervise.limits import Limits
    from gpu_plan.planner.plan.saved import SavedPlan

_LOOKED_AT = (
    "--json, --format, -o, --plot, --sweep and --snapshot are for plans that are looked at: leave out --execute"
)
_RESTARTS = 3


def check_options(args: argparse.Namespace) -> None:
    """UsageError for options that contradict --execute or --plan."""
    shown = (args.format, args.output, args.snapshot, args.timeline, args.plot, args.sweep)
    if args.json or any(value is not None for value in shown):
        raise UsageError(_LOOKED_AT)
    if args.readonly and not args.dry_run:
        raise UsageError("--readonly forbids --execute: add --dry-run to see what would run")
    named = next((name for name in (args.model, args.named_model) if name and str(name).endswith(".toml")), None)
    if named is not None:
        raise UsageError(
            f"{named} names models and phases, and no script that runs them: nothing to execute. Start the tool that it"
            " is of; --execute launches a script that trains one model, or a recipe's own"
        )
    if args.plan is None:
        return
    given = [option for option, value in _job_values(args) if value not in (None, False, [])]
    if given:
        raise UsageError(f"--plan {args.plan} says what to run: leave out {given[0]}, or --plan")


def _job_values(args: argparse.Namespace) -> list[tuple[str, object]]:
    from gpu_plan.planner.options.parser import job_option_names

    names = [name for name in job_option_names() if name not in ("hosts", "max-restarts")]
    pairs = [(f"--{name}", getattr(args, name.replace("-", "_"), None)) for name in names]
    return [
        ("MODEL", args.model),
        ("--model", args.named_model),
        ("--gpus", args.gpus),
        ("--set", args.settings),
        ("--save", args.save),
        *pairs,
    ]


def with_configuration(args: argparse.Namespace, words: Sequence[str], script: Path) -> tuple[list[str], str]:
    """Fills `args` with what the project's configuration says and the command line does not.

    Gives the words of the equivalent command line, and what was taken from where, for a note. The file is the nearest
    upward from the script that says anything of a job, else from the working directory.
    """
    found = _nearest(script)
    if found is None:
        return list(words), ""
    added = _missing(args, configured(found))
    for name, value in vars(namespace(added)).items():
        if name == "settings":
            args.settings = [*value, *args.settings]
        elif getattr(args, name) in (None, False):
            setattr(args, name, value)
    taken = {*added.options, *(("model",) if added.model else ()), *(("gpus",) if added.gpus else ())}
    taken |= {"set"} if added.settings else set()
    if not taken:
        return list(words), ""
    keys = ", ".join(key for key in found.values if key in taken)
    return [*shown_words(added), *words], f"{keys}: from {found.path}"


def _missing(args: argparse.Namespace, job: Named) -> Named:
    """What the configuration says and the command line does not."""
    own = {word.partition("=")[0] for word in args.settings}

    def is_given(name: str) -> bool:
        return getattr(args, name.replace("-", "_"), None) not in (None, False)

    return Named(
        model=None if is_given("model") else job.model,
        gpus=None if is_given("gpus") else job.gpus,
        options={
            name: value
            for name, value in job.options.items()
            if not is_given(name) and not (name == "compile" and own & set(COMPILED))
        },
        settings={key: value for key, value in job.settings.items() if key not in own},
    )


def _nearest(script: Path) -> JobOptions | None:
    for start in (script.parent, Path.cwd()):
        found = job_options(start)
        if found is not None and found.values:
            return found
    return None


def hosts_of(args: argparse.Namespace, saved: "SavedPlan") -> tuple[str, ...]:
    """One host per node of the plan. UsageError where there are too few or too many."""
    nodes = int(str(saved.cluster["nodes"]))
    hosts = tuple(host.strip() for host in (args.hosts or "").split(",") if host.strip())
    if args.hosts is not None and len(hosts) != nodes:
        noun = "node" if nodes == 1 else "nodes"
        raise UsageError(f"--hosts {args.hosts}: the plan is for {nodes} {noun}, this names {len(hosts)}")
    if nodes > 1 and not hosts:
        raise UsageError(f"the plan is for {nodes} nodes: name them with --hosts, and run the same command on each")
    port = hosts[0].rpartition(":")[2] if hosts and ":" in hosts[0] else "1"
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError(f"--hosts {args.hosts}: {port!r} after the colon is not a port")
    return hosts


def rendezvous_port(hosts: Sequence[str]) -> int:
    """The port at which several hosts meet."""
    port = hosts[0].partition(":")[2] if hosts else ""
    return int(port) if port else 29500


def machine_rank_of(args: argparse.Namespace, hosts: Sequence[str]) -> int:
    """Which of the hosts this is: as told, or as SLURM and other schedulers say. UsageError beyond the last."""
    name, text = "--machine-rank", args.machine_rank
    if text is None and len(hosts) > 1:
        name = next((name for name in ("SLURM_NODEID", "NODE_RANK") if os.environ.get(name)), name)
        text = os.environ.get(name)
    rank = 0 if text is None else count(text, name)
    if rank >= max(1, len(hosts)):
        raise UsageError(f"{name} {rank}: there are {max(1, len(hosts))} hosts, counted from 0")
    return rank


def restarts_of(args: argparse.Namespace) -> int:
    """How many new attempts there may be."""
    return _RESTARTS if args.max_restarts is None else count(args.max_restarts, "--max-restarts")


def limits_of(args: argparse.Namespace) -> "Limits":
    """How long to wait for what; --hang-seconds wins over the environment. UsageError for what is no number."""
    from gpu_plan.executor.supervise.limits import read_limits

    return read_limits(os.environ, args.hang_seconds)


def left_running(args: argparse.Namespace) -> tuple[str, ...]:
    """Names of programs that may outlive the run. UsageError for a path, an interpreter or nothing."""
    if args.leave_running is None:
        return ()
    found = tuple(name.strip() for name in args.leave_running.split(","))
    for name in found:
        if not name or "/" in name:
            raise UsageError(f"--leave-running {args.leave_running!r}: {name!r} is not a program's name, such as `ray`")
        if name.startswith("python"):
            raise UsageError(f"--leave-running {name}: so are the ranks called; name the script, such as `serve.py`")
    return found


def count(text: str, option: str) -> int:
    """A whole number of 0 or more; UsageError for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise UsageError(f"{option} {text!r} is not a number of 0 or more")
    return int(text)
