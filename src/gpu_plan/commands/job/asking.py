"""From parsed options to a request, and to the plans that answer it."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_plan.commands.job.output import form_of, plot_targets
from gpu_plan.notes import say
from gpu_plan.planner.errors import UnreachableError, UsageError
from gpu_plan.planner.options.parser import given_job_words
from gpu_plan.planner.visible import visible
from gpu_plan.verbs import VERBS

if TYPE_CHECKING:
    from gpu_plan.commands.job.progress.view import View
    from gpu_plan.planner.options.request import Answer, Request


def check_subject(args: argparse.Namespace) -> None:
    """UsageError unless it is said what is planned, and for which GPUs."""
    if args.model is None and args.named_model is not None:
        raise UsageError(f"which script is --model {args.named_model} compared with? plan train.py --model ...")
    if args.model is None and asks_for_any_model(args):
        return
    if args.model is None:
        raise UsageError("which model? name a hub id, folder, config.json or package.module:factory")
    if args.named_model is not None and not args.model.endswith(".py"):
        raise UsageError(f"--model goes with a training script: plan train.py --model {args.named_model}")
    if args.script_seconds is not None and not args.model.endswith(".py"):
        raise UsageError(f"--script-seconds is about a training script: {args.model} is not one")
    if args.data is not None and not args.model.endswith(".py"):
        raise UsageError(f"--data {args.data} is about a training script: {args.model} is not one")
    if args.gpus is None:
        verb = _verb_like(args.model)
        if verb is not None:
            raise UsageError(f"{args.model} is not a verb. Did you mean plan {verb}? To plan a model, add --gpus")
        raise UsageError(f"which GPUs? add --gpus, such as: plan {args.model} --gpus 8xH100")


def asks_for_any_model(args: argparse.Namespace) -> bool:
    """Whether the largest model of all is asked for: GPUs are given, and no model."""
    return args.model is None and args.gpus is not None and option_word(args.largest or "") == "model"


def option_word(word: str) -> str:
    """`seq_len`, `--seq-len` and `Seq-Len` are one option."""
    return word.strip().lower().removeprefix("--").replace("_", "-")


def asks_for_machines(args: argparse.Namespace) -> bool:
    """Whether machines are to be compared: a model is named, and no GPUs."""
    if args.gpus is not None or args.model is None or args.named_model is not None or args.model.endswith(".py"):
        return False
    return _verb_like(args.model) is None and args.task != "infer"


def find_plans(
    args: argparse.Namespace,
    words: Sequence[str],
    script_words: Sequence[str] = (),
    *,
    advise: bool = False,
    view: "View | None" = None,
) -> "Answer":
    """Runs the main job for parsed options; `words` are the command line that is kept with the answer.

    `script_words` are the arguments of the training script, where one is what is planned; `advise`: whether what else
    could be done is told beside a plan that fits; `view` shows what is done meanwhile.
    """
    from gpu_plan.planner.job.run import run_job

    request = replace(request_of(args, words, script_words), advise=advise)
    try:
        if view is None:
            return run_job(request, Notes())
        with view:
            return run_job(request, Notes(view), watch=view)
    except UnreachableError as problem:
        verb = _verb_like(args.model)
        hint = "" if verb is None else f" Or did you mean the verb: plan {verb}?"
        raise UnreachableError(f"{problem}{hint}") from None


def request_of(args: argparse.Namespace, words: Sequence[str], script_words: Sequence[str] = ()) -> "Request":
    """What parsed options ask for; arguments as of `find_plans`."""
    # transformers' own log lines would stand between ours; who wants them says so in this variable.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from gpu_plan.planner.options.request import Request
    from gpu_plan.planner.options.values import script_seconds

    return Request(
        model=args.named_model or args.model or "",
        script=args.model if args.named_model else None,
        gpus=args.gpus,
        words=given_job_words(args),
        settings=tuple(args.settings),
        pinned=args.pin,
        explain=args.explain,
        alternatives=args.alternatives,
        trust_remote_code=args.trust_remote_code,
        revision=args.revision,
        use_cache=not args.no_cache,
        command="plan "
        + " ".join(shlex.quote(word) for word in (*words, *(("--", *script_words) if script_words else ()))),
        snapshot=args.snapshot is not None,
        plot=any(target.kind == "timeline" for target in plot_targets(args)),
        timeline=form_of(args) == "html",
        schedule=args.timeline is not None,
        script_words=tuple(script_words),
        script_seconds=script_seconds(args.script_seconds),
        standin=args.data == "standin",
        unwalled=args.unwalled,
    )


def _verb_like(word: str) -> str | None:
    """The verb that `word` nearly is, if any; a word with a slash, dot or colon names a model."""
    if set(word) & set("/.:") or os.path.exists(word):
        return None
    import difflib

    close = difflib.get_close_matches(word, VERBS, n=1, cutoff=0.75)
    return close[0] if close else None


class Notes:
    """Prints each note once; progress is the view's, or for people at a terminal; what was repaired is for everyone."""

    def __init__(self, view: "View | None" = None) -> None:
        self._view = view
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        if text in self._said:
            return
        self._said.add(text)
        if not text.startswith("tracing"):
            say(text)
        elif self._view is not None:
            self._view.tracing(text)
        elif sys.stderr.isatty():
            print(visible(f"plan: {text} ..."), file=sys.stderr)
