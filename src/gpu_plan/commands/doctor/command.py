"""`plan doctor [SCRIPT]`: what is wrong with a training script, with this machine, and (--launch) with a launch on it.

Exit code 4 where an error was found: something that stops, hangs or spoils the job. Warnings and notes leave it 0.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.commands.execute.engines import add_engine_options, engine_settings, refuse_engine_options
from gpu_plan.planner.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpu_plan.executor.doctor.examination import Examination
    from gpu_plan.executor.doctor.finding import Finding
    from gpu_plan.executor.doctor.intent import Intent
    from gpu_plan.executor.doctor.machine import Check
    from gpu_plan.executor.doctor.trial.judge import Trial
    from gpu_plan.planner.plan.saved import SavedPlan

_FORMATS = ("text", "json", "md")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plan doctor`."""
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="a training script or notebook; it is not run")
    parser.add_argument("--plan", metavar="FILE", help="a plan that --save wrote: what the job is judged for")
    parser.add_argument("--launch", action="store_true", help="start a small job under the plan, check and time it")
    parser.add_argument("--gpus", metavar="SPEC", help="with --launch and without --plan: 2xcpu, 8xH100, auto")
    parser.add_argument("--strategy", metavar="S", help="with --launch and without --plan: ddp, fsdp, zero2, ...")
    parser.add_argument("--precision", metavar="P", help="with --launch and without --plan: fp32, bf16-mixed, ...")
    parser.add_argument(
        "--on", metavar="ENGINE", help="look at the nodes that this engine gives, with --plan for so many: slurm, ray"
    )
    add_engine_options(parser)
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings", help="ENGINE.KEY=VALUE, repeatable"
    )
    parser.add_argument("--script-only", action="store_true", help="look at the script alone, not at this machine")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--format", choices=_FORMATS, help="default: text")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the report there instead of stdout")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def run(args: argparse.Namespace) -> int:
    """Looks, reports, and gives 0 or 4. UsageError, InputError, UnreachableError for what cannot be read."""
    from gpu_plan.executor.doctor.examination import Examination
    from gpu_plan.executor.doctor.intent import Intent, intent_of

    _refuse(args)
    if args.output is not None and Path(args.output).exists() and not args.force:
        raise UsageError(f"{args.output} is there already: give --force to replace it, or name another file")
    saved = _plan(args)
    intent = Intent() if saved is None else intent_of(saved)
    findings = () if args.script is None else _script(Path(args.script), intent)
    checks = None if args.script_only else _machine(saved) if args.on is None else _nodes(args, saved)
    examination = Examination(
        script=None if args.script is None else str(Path(args.script).absolute()),
        script_findings=findings,
        plan=None if saved is None else _in_words(saved),
        checks=checks,
        where="this machine" if args.on is None else f"nodes of {args.on}",
        trial=_trial(saved) if args.launch and saved is not None else None,
    )
    _write(args, examination)
    return ExitCode.PREFLIGHT if examination.count("error") else ExitCode.OK


def _refuse(args: argparse.Namespace) -> None:
    if args.on is None:
        refuse_engine_options(args, "--on")
        if args.settings:
            raise UsageError(f"--set {args.settings[0]}: the doctor takes settings of an engine alone")
    elif args.launch or args.script_only:
        raise UsageError("--on looks at an engine's nodes: leave out --launch and --script-only")
    if args.json and args.format not in (None, "json"):
        raise UsageError(f"--json and --format {args.format} ask for two formats")
    if args.script_only and args.script is None:
        raise UsageError("--script-only needs a script")
    if args.script_only and args.launch:
        raise UsageError("--script-only looks at no machine, --launch starts a job on it: choose one")
    given = [name for name in ("gpus", "strategy", "precision") if getattr(args, name) is not None]
    if given and args.plan is not None:
        raise UsageError(f"--{given[0]} is part of the plan: give --plan or --{given[0]}")
    if given and not args.launch:
        raise UsageError(f"--{given[0]} says what --launch starts: give --launch, or a plan with --plan")


def _plan(args: argparse.Namespace) -> "SavedPlan | None":
    """The plan of --plan; for --launch without one, that of a small model."""
    if args.plan is not None:
        from gpu_plan.planner.plan.files import load

        return load(args.plan)
    if not args.launch:
        return None
    from gpu_plan.commands.doctor.small_plan import small_plan

    return small_plan(args.gpus or "auto", args.strategy, args.precision)


def _script(path: Path, intent: "Intent") -> "tuple[Finding, ...]":
    from gpu_plan.executor.doctor.script import examine_script
    from gpu_plan.executor.script.read import read_script

    return examine_script(read_script(path.absolute()), intent)


def _machine(saved: "SavedPlan | None") -> "tuple[Check, ...]":
    from gpu_plan.executor.doctor.facts import gather
    from gpu_plan.executor.doctor.machine import examine_machine, need_of

    facts = gather(Path.cwd(), offload=None if saved is None else _swap_folder(saved))
    return examine_machine(facts, None if saved is None else need_of(saved))


def _nodes(args: argparse.Namespace, saved: "SavedPlan | None") -> "tuple[Check, ...]":
    """Every node that the engine gives for the plan; one where there is none."""
    import os
    import shutil
    import tempfile

    from gpu_plan.executor.engines.engine import Shape
    from gpu_plan.executor.engines.export import shape_of
    from gpu_plan.executor.engines.preflight.collect import look
    from gpu_plan.executor.engines.registry import find_running
    from gpu_plan.planner.own_python import own_environment
    from gpu_plan.planner.plan.files import save

    engine = find_running(args.on)
    settings = engine_settings(args, engine)
    if args.settings:
        raise UsageError(f"--set {args.settings[0]}: the doctor takes settings of {engine.title} alone")
    engine.check(settings)
    one = Shape(name="plan-doctor", nodes=1, ranks_per_node=1, gpu=None)
    shape = one if saved is None else shape_of(saved, "plan-doctor")
    print(f"plan: asking {engine.title} for {shape.nodes} nodes", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix=".plan-doctor-", dir=Path.cwd()))
    try:
        if saved is not None:
            save(saved, folder / "plan.json")
        start = engine.from_outside(shape, settings)
        environment = own_environment(os.environ)
        return look(folder, engine.name, shape.nodes, start, environment, python=settings.values.get("python", ""))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _swap_folder(saved: "SavedPlan") -> Path | None:
    """Where the plan's swap files are to lie."""
    from gpu_plan.planner.workload.training import NVME_PATH

    if saved.plan.strategy.offload != "nvme":
        return None
    settings = saved.workload.get("settings")
    return Path(str(settings.get("zero.nvme_path", NVME_PATH) if isinstance(settings, dict) else NVME_PATH))


def _trial(saved: "SavedPlan") -> "Trial":
    from gpu_plan.executor.doctor.trial.run import trial

    print(f"plan: starting a small job under {_in_words(saved)}; a minute or so", file=sys.stderr)
    return trial(saved)


def _in_words(saved: "SavedPlan") -> str:
    strategy = saved.plan.strategy
    return f"{strategy.name} on {saved.cluster['spec']}, {strategy.precision}"


def _write(args: argparse.Namespace, examination: "Examination") -> None:
    from gpu_plan.planner.plan.files import write_text
    from gpu_plan.reports.doctor import render_json, render_markdown, render_text

    form = "json" if args.json else args.format or "text"
    encodable = args.output is not None or (sys.stdout.encoding or "").lower().startswith("utf")
    if form == "json":
        text = render_json(examination) + "\n"
    elif form == "md":
        text = render_markdown(examination)
    else:
        text = render_text(examination, ascii_only=args.ascii or not encodable)
    if args.output is None:
        sys.stdout.write(text)
    else:
        write_text(args.output, text, force=args.force)
