"""The public Python API: `from gpu_plan import plan, sweep`, for notebooks and programs.

What a call can ask for is what the command line can: arguments become its words, and errors are the same classes of
`gpu_plan.planner.errors`, with one line each. Results show themselves in notebooks and give pandas frames.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from gpu_plan.api.results import Result, SweepResult
from gpu_plan.api.words import JobOptions, sweep_values, values_of
from gpu_plan.planner.errors import InputError, UsageError

if TYPE_CHECKING:
    import argparse

__all__ = ["Result", "SweepResult", "plan", "sweep"]


def plan(
    model: str | os.PathLike[str],
    gpus: str | None = None,
    *,
    script_arguments: Sequence[object] = (),
    **options: Unpack[JobOptions],
) -> Result:
    """Plans a job: `plan("meta-llama/Llama-3.1-8B", gpus="8xH100", seq_len=8192)`.

    `model`: a hub id, a folder, a `config.json`, `package.module:factory`, or a training script, whose own words are
    `script_arguments`. `options`: as on the command line, `-` as `_`; `settings` is what `--set` takes.

    Raises a class of `PlanError` in one line, for instance UsageError for an option or value that makes no sense,
    UnreachableError for a model that is not there. That nothing fits is no error: `result.best` is None.
    """
    from gpu_plan.commands.job.asking import check_subject, find_plans

    arguments = [str(word) for word in script_arguments]
    args, words = _asked(model, gpus, options)
    check_subject(args)
    answer = find_plans(args, words, arguments, advise=True)

    def again(kind: str) -> object:
        return _drawn(kind, args, answer.document, words, arguments)

    return Result(document=answer.document, _draw=again)


def sweep(
    model: str | os.PathLike[str] | None = None,
    gpus: str | None = None,
    *,
    over: Mapping[str, Iterable[object]],
    progress: Callable[[int, int], None] | None = None,
    script_arguments: Sequence[object] = (),
    **options: Unpack[JobOptions],
) -> SweepResult:
    """Plans every combination of values: `sweep("gpt2", gpus="1xT4", over={"seq_len": [256, 512]})`.

    `over`: values by option, `model`, `gpus` or key of `--set`; the last varies fastest. Every value is checked before
    any work. `progress` is told how many points of how many are done. Other arguments and errors: as of `plan`.
    """
    from gpu_plan.commands.job.points import check, run
    from gpu_plan.planner.sweep.axes import parse_axes

    if not over:
        raise UsageError("sweep() needs values to vary: over={'seq_len': [2048, 8192]}")
    args, words = _asked(model, gpus, options)
    args.sweep = sweep_values(over)
    words += [f"--sweep={value}" for value in args.sweep]
    axes = parse_axes(args.sweep)
    check(args, axes)
    swept = run(axes, args, words, [str(word) for word in script_arguments], progress or (lambda done, of: None))
    return SweepResult(document=swept.document, documents=swept.documents)


def _asked(
    model: str | os.PathLike[str] | None, gpus: str | None, options: Mapping[str, object]
) -> tuple["argparse.Namespace", list[str]]:
    """What the arguments ask for, and the command line that would ask for the same, to be shown."""
    from gpu_plan.planner.options.given.named import named, namespace, shown_words
    from gpu_plan.planner.options.parser import refuse_what_is_not_built

    try:
        job = named({"model": None if model is None else os.fspath(model), "gpus": gpus, **values_of(options)})
    except InputError as problem:
        raise UsageError(str(problem)) from None
    args = namespace(job)
    args.explain = options.get("explain") is True
    args.no_cache = options.get("use_cache") is False
    args.unwalled = options.get("unwalled") is True
    refuse_what_is_not_built(args)
    words = [
        *shown_words(job),
        *["--explain"] * args.explain,
        *["--no-cache"] * args.no_cache,
        *["--unwalled"] * args.unwalled,
    ]
    return args, words


def _drawn(
    kind: str, args: "argparse.Namespace", document: object, words: Sequence[str], rest: Sequence[str]
) -> object:
    """The timeline of a plan's step, or a figure of another kind: what takes a further search."""
    from gpu_plan.commands.job.asking import find_plans
    from gpu_plan.commands.job.plots import figure_of
    from gpu_plan.planner.plan.document import PlanDocument

    if kind == "timeline":
        args.plot = ["timeline:x.csv"]
        try:
            return find_plans(args, words, rest).timeline
        finally:
            args.plot = None
    assert isinstance(document, PlanDocument)
    return figure_of(kind, document, args, words, rest, lambda done, of: None)
