"""`plan ... --execute SCRIPT`: finds or reads the plan, checks that it still holds, and launches it."""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.commands.execute.engines import engine_settings, refuse_engine_options, refuse_what_engines_do
from gpu_plan.commands.execute.options import (
    check_options,
    hosts_of,
    left_running,
    limits_of,
    machine_rank_of,
    rendezvous_port,
    restarts_of,
    with_configuration,
)
from gpu_plan.commands.execute.stopwatch import Stopwatch
from gpu_plan.notes import say
from gpu_plan.planner.errors import ExitCode, UsageError
from gpu_plan.planner.job.checks import check_machine, check_plan, check_port
from gpu_plan.planner.options.parser import refuse_what_is_not_built
from gpu_plan.planner.options.values import positive
from gpu_plan.planner.units import format_bytes

if TYPE_CHECKING:
    from gpu_plan.executor.job import Job
    from gpu_plan.executor.records.run import Phase
    from gpu_plan.executor.script.read import Script
    from gpu_plan.executor.supervise.limits import Limits
    from gpu_plan.planner.plan.document import PlanDocument
    from gpu_plan.planner.plan.saved import SavedPlan

LAUNCHER_FAILED = 125


def execute(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str]) -> int:
    """Launches the job and gives its exit code; with --dry-run shows what would be launched."""
    from gpu_plan.executor.inference.job import is_inference
    from gpu_plan.executor.job import Job
    from gpu_plan.executor.launch.prepare import check, draw
    from gpu_plan.executor.launch.prompts import WORD
    from gpu_plan.executor.script.read import read_script

    clock = Stopwatch()
    engine = None
    if args.on is not None:
        from gpu_plan.executor.engines.registry import find_running

        engine = find_running(args.on)
        refuse_what_engines_do(args, engine)
        settings = engine_settings(args, engine)
    else:
        refuse_engine_options(args, "--on")
    check_options(args)
    script = _script(args)
    parsed = read_script(script)
    saved = _read(args) if args.plan is not None else _search(args, words, script, script_words)
    if saved is None:
        return ExitCode.NOTHING_FITS
    clock.ended("planning")
    if args.execute == WORD and not is_inference(saved):
        raise UsageError(f"{WORD} runs prompts, and the plan is for training: plan with --task infer")
    for warning in saved.warnings:
        say(warning)
    hosts = () if engine is not None else hosts_of(args, saved)
    limits = limits_of(args)
    job = Job(
        saved=saved,
        script=script,
        arguments=tuple(script_words),
        working_directory=Path.cwd(),
        max_restarts=restarts_of(args),
        leave_running=left_running(args),
        hosts=hosts,
        machine_rank=machine_rank_of(args, hosts),
        allow_deviation=args.allow_deviation,
        stop_on_nan=args.stop_on_nan,
        command=shlex.join(["plan", *words, *(["--", *script_words] if script_words else [])]),
    )
    _say_where_it_begins(job)
    if engine is not None:
        from gpu_plan.commands.execute.submit import show, submit_and_follow

        check(draw(job, parsed, folder=Path.cwd()), job)
        if args.dry_run:
            return show(job, engine, settings)
        clock.ended("checking")
        return submit_and_follow(job, engine, settings, hang_seconds=args.hang_seconds, phases=clock.phases)
    if args.dry_run:
        return _show(job)
    _check_here(job, parsed, built_in=args.execute == WORD)
    clock.ended("checking")
    if len(hosts) > 1 and job.max_restarts and not is_inference(saved):
        from gpu_plan.commands.execute.hosts import run_on_hosts

        code = run_on_hosts(job, port=rendezvous_port(hosts), hang_seconds=args.hang_seconds, phases=clock.phases)
        if code is not None:
            return code
    return _launch(job, limits, clock.phases)


def _check_here(job: "Job", parsed: "Script", *, built_in: bool) -> None:
    """What the run would stumble over on this machine is said before there is one."""
    from gpu_plan.executor.inference.job import is_inference
    from gpu_plan.executor.launch.prepare import check, draw

    check_machine(job.saved)
    if is_inference(job.saved):
        from gpu_plan.executor.inference.preflight import preflight

        preflight(job.saved, job.arguments if built_in else None, Path.cwd())
    else:
        check(draw(job, parsed, folder=Path.cwd()), job)
    check_port(job.hosts, job.machine_rank, rendezvous_port(job.hosts))


def _say_where_it_begins(job: "Job") -> None:
    """A note where the script's words name a checkpoint that must be converted; PreflightError where it cannot be."""
    from gpu_plan.executor.supervise.resumption import given_in

    given = given_in(job, whole=False)
    if given is None or given.resume.conversion is None:
        return
    manifest, to = given.resume.checkpoint.manifest, given.resume.conversion
    say(
        f"{given.named.option} {given.named.value} was saved under {manifest.strategy} on {manifest.world_size} ranks:"
        f" it is converted for {to.strategy} on {to.world_size} before the launch, the original left as it is"
    )


def _script(args: argparse.Namespace) -> Path:
    """The script that --execute names: a file, or the built-in prompt runner."""
    from gpu_plan.executor.launch.prompts import SCRIPT, WORD

    if args.execute == WORD:
        return SCRIPT
    if args.execute.startswith("@"):
        raise UsageError(f"--execute {args.execute}: {WORD} is the only built-in runner")
    return Path(args.execute).absolute()


def _read(args: argparse.Namespace) -> "SavedPlan":
    """The plan of --plan, refused where it no longer holds."""
    from gpu_plan.planner.plan.files import load

    saved = load(args.plan)
    note = check_plan(saved, args.plan)
    if note is not None:
        say(note)
    return saved


def _search(
    args: argparse.Namespace, words: Sequence[str], script: Path, script_words: Sequence[str]
) -> "SavedPlan | None":
    """The best plan found for the options given and configured; None where nothing fits, which is then shown.

    The model is MODEL, else the configuration's, else the one that the script itself builds.
    """
    from gpu_plan.commands.job.output import check_targets, save_best, write_report
    from gpu_plan.planner.plan.saved import saved_plan

    built_in = args.execute.startswith("@")
    # The built-in runner lies among our own files: what is configured is the user's folder.
    all_words, taken = with_configuration(args, words, Path.cwd() / args.execute if built_in else script)
    refuse_what_is_not_built(args)
    if taken:
        say(taken)
    if args.named_model is not None:
        if args.model is not None:
            raise UsageError(f"MODEL {args.model} and --model {args.named_model} both name a model: keep one")
        if built_in:
            raise UsageError(f"--model goes with a training script: plan {args.named_model} --execute {args.execute}")
        args.model = args.execute
    elif args.model is None and (built_in or args.task == "infer"):
        raise UsageError("whose prompts? name the model: plan MODEL --task infer ... --execute " + args.execute)
    elif args.model is None:
        args.model = args.execute
        all_words.insert(0, args.execute)
        say(f"the plan is for what {args.execute} trains; MODEL, or model = '...' in a plan.toml, names another model")
    if args.gpus is None:
        args.gpus = "auto"
    check_targets(args)
    if args.task == "infer" and not args.dry_run:
        from gpu_plan.executor.inference.early import refuse_early

        # Of a script of one's own, which may take its weights elsewhere, nothing is known yet.
        refuse_early(args.model, args.revision, script_words if built_in else None)
    say(f"planning {args.model} for {args.gpus}")
    began = time.monotonic()
    document = _document(args, all_words, script_words, taken)
    if document.best is None:
        write_report(args, document, positive(args.top, "--top") or 5)
        return None
    if args.save is not None:
        save_best(args, document)
    saved = saved_plan(document)
    say(f"{_in_a_line(saved)}; planned in {time.monotonic() - began:.1f} s")
    return saved


def _document(
    args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str], taken: str
) -> "PlanDocument":
    from gpu_plan.commands.job.asking import find_plans
    from gpu_plan.commands.job.progress.choice import view_for

    try:
        own = script_words if args.model.endswith(".py") else ()
        return find_plans(args, words, own, view=view_for(args)).document
    except UsageError as error:
        if not taken:
            raise
        raise UsageError(f"{error} ({taken})") from None


def _in_a_line(saved: "SavedPlan") -> str:
    """What was chosen, for people: the report itself is what the same command shows without --execute."""
    strategy = saved.plan.strategy
    memory = saved.plan.memory
    batch = f"micro batch {strategy.micro_batch_size} x {strategy.gradient_accumulation_steps}"
    used = "" if memory is None else f", {format_bytes(memory.device_used_bytes or 0)} on each rank expected"
    if saved.workload.get("task") == "infer":
        batch = f"batch {strategy.micro_batch_size}, context {saved.workload['context']}"
    else:
        batch += f", checkpointing {strategy.checkpointing}"
    tight = ", and that is tight" if saved.plan.verdict == "tight" else ""
    where = saved.cluster["spec"]
    return f"{strategy.name} on {where}, {batch}{used}{tight}"


def _show(job: "Job") -> int:
    from gpu_plan.commands.execute.shown import shown
    from gpu_plan.executor.launch.prepare import prepare
    from gpu_plan.executor.run_folder import RunFolder

    folder = RunFolder(job.working_directory / "runs" / "RUN")
    launch = prepare(job, attempt=1, folder=folder, resume_from=None)
    sys.stdout.write(shown(launch))
    for line in launch.notes:
        say(line)
    for line in launch.not_applied:
        say(f"not applied: {line}")
    return ExitCode.OK


def _launch(job: "Job", limits: "Limits", phases: "tuple[Phase, ...]") -> int:
    from gpu_plan.commands.execute.learn import learn
    from gpu_plan.executor.live.show import live
    from gpu_plan.executor.read_run import read_whole
    from gpu_plan.executor.run_folder import create
    from gpu_plan.executor.supervise.supervisor import supervise

    folder = create(job.working_directory)
    with live() as observe:
        record = supervise(job, observe=observe, limits=limits, phases=phases, folder=folder)
    if record.status == "succeeded":
        learn(read_whole(folder))
    return record.exit_code if record.exit_code is not None else LAUNCHER_FAILED
