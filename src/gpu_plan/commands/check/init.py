"""`plan check --init`: jobs that the repository seems to have, as TOML to look at, or added to its configuration."""

import argparse
import sys
from pathlib import Path

from gpu_plan.notes import say
from gpu_plan.planner.errors import ExitCode, InputError
from gpu_plan.planner.foreign.as_toml import MAX_BYTES, toml_table
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.foreign.limits import MalformedError
from gpu_plan.planner.options.config import check_tables, job_options
from gpu_plan.planner.visible import visible


def init(args: argparse.Namespace) -> int:
    """Prints the tables, or with --write adds them to the configuration file; what is there is never changed.

    Exit code 0, also where nothing is found: that is said on stderr.
    """
    from gpu_plan.commands.from_config import fetcher, read_file
    from gpu_plan.planner.regression.propose import propose, to_toml

    target, prefix, taken = _target()
    options = job_options(target.parent)
    gpus = None if options is None else options.values.get("gpus")
    found = propose(target.parent, taken, gpus if isinstance(gpus, str) else None, read_file, fetcher)
    if not found:
        known = f" beyond {', '.join(sorted(taken))}" if taken else ""
        say(
            f"{target.parent} holds no job to check{known}: no training script, no configuration of another"
            " tool, no config.json of a model; README.md shows how a table is written"
        )
        return ExitCode.OK
    text = to_toml(found, prefix)
    if args.write:
        _append(target, text)
        names = ", ".join(proposal.name for proposal in found)
        print(visible(f"plan: added to {target}: {names}; look at them, then `plan check --update`"), file=sys.stderr)
        return ExitCode.OK
    if args.output is not None:
        from gpu_plan.planner.plan.files import write_text

        write_text(args.output, text, force=args.force)
        return ExitCode.OK
    sys.stdout.write(text)
    say(f"for {target.name}; `plan check --init --write` adds them to {target}")
    return ExitCode.OK


def _target() -> tuple[Path, str, dict[str, object]]:
    """The configuration file to add to, what stands before `checks` in it, and its jobs' models by name."""
    here = Path.cwd()
    tables = check_tables(here)
    if tables is not None:
        models = {name: table.get("model") for name, table in tables.tables.items() if isinstance(table, dict)}
        return tables.path, tables.prefix, models
    project = here / "pyproject.toml"
    return (project, "tool.plan.", {}) if project.is_file() else (here / "plan.toml", "", {})


def _append(target: Path, text: str) -> None:
    """Adds tables behind all that is there. InputError where the file could not hold them."""
    from gpu_plan.planner.plan.files import write_text

    try:
        before = read_bytes(target, MAX_BYTES + 1).decode("utf-8") if target.is_file() else ""
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{target} cannot be read: {problem}") from None
    between = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    whole = before + between + text
    try:
        toml_table(whole.encode())
    except MalformedError as problem:
        raise InputError(f"{target} cannot take further tables ({problem}): add them by hand") from None
    write_text(target, whole, force=True)
