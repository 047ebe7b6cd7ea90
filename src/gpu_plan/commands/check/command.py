"""`plan check [NAME...]`: the memory of the project's jobs against their budgets and baselines."""

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.commands.report.of_check import FORMATS
from gpu_plan.planner.errors import ExitCode, InputError, UsageError
from gpu_plan.planner.options.config import CheckTables, check_tables
from gpu_plan.planner.options.parser import add_unwalled
from gpu_plan.planner.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_plan.planner.options.request import Answer
    from gpu_plan.planner.regression.jobs import CheckJob
    from gpu_plan.planner.regression.result import CheckReport
    from gpu_plan.planner.regression.run import Checked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan check`."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="jobs of [tool.plan.checks]; default: all")
    parser.add_argument("--update", action="store_true", help="write the baselines, .plan/NAME.json, from what is now")
    parser.add_argument("--init", action="store_true", help="propose jobs from what the repository holds, as TOML")
    parser.add_argument("--write", action="store_true", help="with --init: append them to the configuration file")
    parser.add_argument("--measured", metavar="RUN", help="compare a recorded run with the plan and the baseline")
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report there instead of stdout")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")
    add_unwalled(parser)
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def run(args: argparse.Namespace) -> int:
    """Checks; 0 where nothing regressed, 1 for a regression or a broken budget, 2 for what makes no sense."""
    _check_options(args)
    if args.init:
        return _init(args)
    tables = check_tables(Path.cwd())
    if tables is None or not tables.tables:
        where = "there is no pyproject.toml with [tool.plan], nor a plan.toml," if tables is None else tables.path.name
        raise InputError(f"{where} has no jobs to check: `plan check --init` proposes [tool.plan.checks.NAME] tables")
    report = _report(args, tables)
    _show(args, report)
    _say_problems(report)
    return report.exit_code


def _check_options(args: argparse.Namespace) -> None:
    """UsageError for options that do not go together, or a target that cannot be written."""
    if args.json:
        args.format = "json"
    if args.init and (args.update or args.measured or args.names):
        raise UsageError("--init proposes jobs: it goes with no NAME, --update or --measured")
    if args.write and not args.init:
        raise UsageError("--write goes with --init")
    if args.measured and args.update:
        raise UsageError("--measured and --update contradict each other: a baseline is what is planned")
    if args.output is not None:
        target = Path(args.output)
        if not target.absolute().parent.is_dir():
            raise UsageError(f"-o {target}: the folder {target.absolute().parent} does not exist")
        if target.is_dir() or (target.exists() and not args.force and not target.is_char_device()):
            raise UsageError(f"-o {target} exists: add --force to overwrite it")


def _report(args: argparse.Namespace, tables: CheckTables) -> "CheckReport":
    from gpu_plan.planner.cache_dir import versions
    from gpu_plan.planner.regression.result import CheckReport
    from gpu_plan.planner.regression.run import check_jobs

    found = check_jobs(tables, args.names, _planner(args), update=args.update, use_cache=not args.no_cache)
    if args.measured is not None:
        found = _measured(args, found)
    return CheckReport(
        command="plan check " + " ".join(map(shlex.quote, _words(args))) if _words(args) else "plan check",
        root=str(tables.path.parent),
        versions=dict(versions()),
        jobs=tuple(checked.result for checked in found),
    )


def _words(args: argparse.Namespace) -> list[str]:
    """The command line again, without what only says where it is shown."""
    words = list(args.names)
    if args.update:
        words.append("--update")
    if args.measured is not None:
        words += ["--measured", args.measured]
    return words


class _Planner:
    """Runs the main job for a check: pinned, its tensors named."""

    def __init__(self, use_cache: bool, unwalled: bool) -> None:
        from gpu_plan.commands.job.asking import Notes

        self._use_cache, self._unwalled, self._note = use_cache, unwalled, Notes()

    def __call__(self, job: "CheckJob", gpus: str) -> "Answer":
        from gpu_plan.commands.job.asking import request_of
        from gpu_plan.planner.job.run import run_job
        from gpu_plan.planner.options.given.named import named, namespace, shown_words
        from gpu_plan.planner.options.parser import refuse_what_is_not_built
        from gpu_plan.planner.regression.computed import EXPLAINED

        asked = named({**job.options, "model": job.model, "gpus": gpus, "pin": True})
        args, words = namespace(asked), shown_words(asked)
        refuse_what_is_not_built(args)
        args.explain = True
        # What a script or factory is made of is watched by the check itself, and over all of the project.
        args.no_cache = job.runs_code or not self._use_cache
        args.unwalled = self._unwalled
        request = replace(request_of(args, words, job.args), explained=EXPLAINED, follow=True)
        return run_job(request, self._note)


def _planner(args: argparse.Namespace) -> _Planner:
    return _Planner(use_cache=not args.no_cache, unwalled=args.unwalled)


def _show(args: argparse.Namespace, report: "CheckReport") -> None:
    from gpu_plan.commands.report.of_check import rendered, tell_github

    whole = rendered(report, args.format, ascii_only=args.ascii)
    if args.output is not None:
        from gpu_plan.planner.plan.files import write_text

        write_text(args.output, whole, force=args.force)
    else:
        sys.stdout.write(whole)
        sys.stdout.flush()
    if args.format == "github":
        tell_github(report)


def _say_problems(report: "CheckReport") -> None:
    """What kept a job from being computed, on stderr as any other error is."""
    for job in report.jobs:
        for finding in job.findings:
            if finding.kind == "problem":
                place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
                print(visible(f"plan: error: {place}: [checks.{job.name}]: {finding.message}"), file=sys.stderr)


def _measured(args: argparse.Namespace, found: "Sequence[Checked]") -> "tuple[Checked, ...]":
    from gpu_plan.commands.check.measured import with_run

    return with_run(found, args.measured)


def _init(args: argparse.Namespace) -> int:
    from gpu_plan.commands.check.init import init

    return init(args)


__all__ = ["ExitCode", "add_arguments", "run"]
