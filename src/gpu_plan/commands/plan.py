"""The main job: `plan MODEL --gpus SPEC [options]`."""

import argparse
from collections.abc import Sequence

from gpu_plan.planner.errors import ExitCode, UsageError
from gpu_plan.planner.options.parser import refuse_what_is_not_built
from gpu_plan.planner.options.values import positive
from gpu_plan.planner.options.words import join_negative, main_parser, no_verb, unknown_options
from gpu_plan.verbs import VERBS
from gpu_plan.version import __version__


def run_words(words: Sequence[str], script_words: Sequence[str]) -> int:
    """Parses the main job's words and runs it; gives the exit code."""
    parser = main_parser(VERBS)
    args, unknown = parser.parse_known_args(join_negative(words))
    if args.version:
        print(f"plan {__version__}")
        return ExitCode.OK
    if (action := no_verb(args.model)) is not None:
        raise action
    if unknown:
        raise unknown_options(parser, unknown)
    if args.model is None and len(words) == 0:
        parser.print_help()
        return ExitCode.OK
    return run_parsed(args, words, script_words)


def run_parsed(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str]) -> int:
    """Runs the main job; `words` are the command line that is kept with the answer, and no more than shown."""
    refuse_what_is_not_built(args)
    if args.execute is not None:
        from gpu_plan.commands.execute.command import execute

        return execute(args, words, script_words)
    _check_nothing_to_run(args, script_words)
    from gpu_plan.commands.execute.engines import refuse_engine_options

    refuse_engine_options(args, "--execute SCRIPT --on")
    return _run(args, words, script_words)


def _check_nothing_to_run(args: argparse.Namespace, script_words: Sequence[str]) -> None:
    """UsageError for options that say something about a script that there is not."""
    if script_words and not str(args.model).endswith(".py"):
        raise UsageError("arguments after -- belong to a script: name it with --execute SCRIPT, or as MODEL")
    for option, value in (
        ("--plan", args.plan),
        ("--dry-run", args.dry_run or None),
        ("--hosts", args.hosts),
        ("--machine-rank", args.machine_rank),
        ("--on", args.on),
        ("--max-restarts", args.max_restarts),
        ("--hang-seconds", args.hang_seconds),
        ("--leave-running", args.leave_running),
        ("--allow-deviation", args.allow_deviation or None),
        ("--stop-on-nan", args.stop_on_nan or None),
    ):
        if value is not None:
            raise UsageError(f"{option} is about a script that runs: add --execute SCRIPT")


def _run(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str]) -> int:
    from gpu_plan.commands.job.asking import asks_for_machines, check_subject, find_plans
    from gpu_plan.commands.job.output import check_targets, write_report, write_schedule, write_snapshot_of
    from gpu_plan.commands.job.progress.choice import view_for

    if args.sweep:
        from gpu_plan.commands.sweep import sweep

        return sweep(args, words, script_words)
    top = positive(args.top, "--top") or 5
    if asks_for_machines(args) and args.largest is None:
        from gpu_plan.commands.job.machines import compare_machines

        return compare_machines(args, words, positive(args.top, "--top") or 12)
    if args.machines is not None:
        raise UsageError("--machines are compared where there is no --gpus: leave one of them out")
    check_subject(args)
    if args.largest is not None:
        from gpu_plan.commands.job.largest import tell_largest

        return tell_largest(args, words)
    check_targets(args)
    answer = find_plans(args, words, script_words, advise=True, view=view_for(args))
    write_report(args, answer.document, top, answer.timeline, answer.schedule)
    if args.snapshot is not None:
        write_snapshot_of(args, answer)
    if args.timeline is not None:
        write_schedule(args, answer)
    if args.plot:
        from gpu_plan.commands.job.plots import write_plots

        write_plots(args, answer, words, script_words)
    return ExitCode.OK if any(plan.fits for plan in answer.document.plans) else ExitCode.NOTHING_FITS
