"""From the command line, or a plan's file, to the explorer's first state.   I/O"""

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.options.given.named import named
from gpu_plan.planner.options.parser import given_job_words
from gpu_plan.planner.options.task import is_inference
from gpu_plan.planner.options.values import script_seconds
from gpu_plan.planner.options.words import main_parser
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.tui.state import State

_NEUTRAL = ("tp", "pp", "quantize")
"""Options of inference whose neutral values training takes too."""


def initial_state(
    args: argparse.Namespace, words: Sequence[tuple[str, str]], script_words: Sequence[str] = ()
) -> State:
    """The state that the options describe. UsageError for what makes no sense, and as `load_any`."""
    if args.plan is not None:
        given = (
            [f"--{name}" for name, _ in words] + (["MODEL"] if args.model else []) + (["--gpus"] if args.gpus else [])
        )
        if given:
            raise UsageError(f"--plan {args.plan} says what to begin with: leave out {given[0]}, or --plan")
        return restored(args.plan, trusted=args.trust_remote_code)
    if args.model is None:
        raise UsageError("which model? plan explore MODEL --gpus 8xH100")
    if args.gpus is None:
        raise UsageError(f"which GPUs? add --gpus, such as: plan explore {args.model} --gpus 8xH100")
    if script_words and not args.model.endswith(".py"):
        raise UsageError(f"arguments after -- belong to a training script: {args.model} is not one")
    return _state(args, words, script_words)


def _state(args: argparse.Namespace, words: Sequence[tuple[str, str]], script_words: Sequence[str]) -> State:
    """UsageError for options of another task than the one given, and for a script that shall generate."""
    given = dict(words)
    if is_inference(given) and args.model.endswith(".py"):
        raise UsageError(f"--task infer plans a model, not a training script: {args.model}")
    # What only training knows --tp 1 for says nothing.
    words = [(name, value) for name, value in words if "task" in given or name not in _NEUTRAL]
    return State(
        model=args.model,
        gpus=args.gpus,
        given=tuple(words),
        settings=tuple(args.settings),
        trust_remote_code=args.trust_remote_code,
        revision=args.revision,
        no_cache=args.no_cache,
        script_words=tuple(script_words),
        script_seconds=script_seconds(args.script_seconds),
        unwalled=args.unwalled,
        following=not args.pin,
    )


def restored(path: str, *, trusted: bool = False) -> State:
    """The state in which a plan was made, with that plan in the picture. InputError where its command is no plan's.

    `trusted`: whether code of the model's repository may run. That is for who opens the plan to say, not for the file.
    """
    from gpu_plan.planner.plan.files import load_any

    plan = load_any(path)
    try:
        words = shlex.split(plan.command)
    except ValueError:
        words = []
    at = words.index("--") if "--" in words else len(words)
    words, script_words = words[:at], words[at + 1 :]
    try:
        args, unknown = main_parser(add_help=False).parse_known_args(words[1:])
    except UsageError:
        args, unknown = None, ["?"]
    if unknown or args is None or words[:1] != ["plan"] or args.model is None or args.gpus is None:
        raise InputError(f"{path} was made by {plan.command[:80]!r}, which names no MODEL and --gpus to explore")
    args.trust_remote_code = trusted
    named({"model": args.named_model or args.model, "gpus": args.gpus, "revision": args.revision})  # or refused
    if args.named_model is not None:
        # Of a model that a script is compared with: the model is what is planned.
        args.model, script_words = args.named_model, []
    if args.execute is not None:
        script_words = []
    state = replace(_state(args, given_job_words(args), script_words), following=False)
    candidate = plan.plan if isinstance(plan, SavedPlan) else plan.best
    return state if candidate is None else state.at(candidate.strategy)


def draw_at_once() -> None:
    """Before Textual is imported: it draws 60 times a second at most, and a change waits for up to two such moments."""
    os.environ.setdefault("TEXTUAL_FPS", "240")


def explore(state: State, *, ascii_only: bool = False, readonly: bool = False) -> int:
    """Runs the explorer until the person leaves; gives the exit code. Raises what ended it from within."""
    draw_at_once()
    from gpu_plan.tui.app import ExplorerApp

    app = ExplorerApp(state, ascii_only=ascii_only, readonly=readonly)
    code = app.run()
    if app.failure is not None:
        raise app.failure
    return code or app.return_code or 0
