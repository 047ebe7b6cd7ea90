"""From the command line, or a plan's file, to the explorer's first state.   I/O"""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace

from planner.errors import InputError, UsageError
from planner.options import given_job_words, main_parser
from planner.plan_saved import SavedPlan
from tui.choices import CHOICES
from tui.state import State


def initial_state(args: argparse.Namespace, words: Sequence[tuple[str, str]]) -> State:
    """The state that the options describe. UsageError for what makes no sense, and as `planner.plan_io.load_any`."""
    if args.plan is not None:
        given = (
            [f"--{name}" for name, _ in words] + (["MODEL"] if args.model else []) + (["--gpus"] if args.gpus else [])
        )
        if given:
            raise UsageError(f"--plan {args.plan} says what to begin with: leave out {given[0]}, or --plan")
        return restored(args.plan)
    if args.model is None:
        raise UsageError("which model? plan explore MODEL --gpus 8xH100")
    if args.model.endswith(".py"):
        raise UsageError(f"{args.model} is a script: plan {args.model} --gpus ... plans it; the explorer takes models")
    if args.gpus is None:
        raise UsageError(f"which GPUs? add --gpus, such as: plan explore {args.model} --gpus 8xH100")
    return _state(args, words)


def _state(args: argparse.Namespace, words: Sequence[tuple[str, str]]) -> State:
    for name, value in words:
        if name not in CHOICES:
            shown = f"--{name} {value}"
            raise UsageError(
                f"{shown}: the explorer is for training; plan {args.model} --gpus ... {shown} prints a plan"
            )
    return State(
        model=args.model,
        gpus=args.gpus,
        given=tuple(words),
        settings=tuple(args.settings),
        trust_remote_code=args.trust_remote_code,
        revision=args.revision,
        no_cache=args.no_cache,
        following=not args.pin,
    )


def restored(path: str) -> State:
    """The state in which a plan was made, with that plan in the picture. InputError where its command is no plan's."""
    from planner.plan_io import load_any

    plan = load_any(path)
    words = shlex.split(plan.command)
    try:
        args, unknown = main_parser().parse_known_args(words[1:])
    except UsageError:
        args, unknown = None, ["?"]
    if unknown or args is None or words[:1] != ["plan"] or args.model is None or args.gpus is None:
        raise InputError(f"{path} was made by {plan.command[:80]!r}, which names no MODEL and --gpus to explore")
    if args.model.endswith(".py"):
        raise InputError(f"{path} is the plan of a script, {args.model[:80]}: the explorer takes models")
    state = replace(_state(args, given_job_words(args)), following=False)
    candidate = plan.plan if isinstance(plan, SavedPlan) else plan.best
    return state if candidate is None else state.at(candidate.strategy)


def explore(state: State, *, ascii_only: bool = False, readonly: bool = False) -> int:
    """Runs the explorer until the person leaves; gives the exit code."""
    from tui.app import ExplorerApp

    app = ExplorerApp(state, ascii_only=ascii_only, readonly=readonly)
    code = app.run()
    return code or app.return_code or 0
