"""The command `plan`: splits words, picks the verb, turns errors into one line and an exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from gpu_plan.planner.errors import (
    ExitCode,
    PlanError,
    ReaderGoneError,
    StoppedError,
    UnreachableError,
    UsageError,
)
from gpu_plan.planner.visible import visible
from gpu_plan.verbs import VERBS, verb_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; gives its exit code, whatever happens: nothing but an answer is ever OK or 1."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _check_working_directory()
        return int(_run(words))
    except ReaderGoneError:
        # `plan ... | head`: nothing is left to say.
        return int(ExitCode.OK)
    except PlanError as problem:
        return _say(f"error: {problem}", problem.exit_code)
    except StoppedError as stopped:
        for known in stopped.lines:
            print(visible(f"plan: {known}"), file=sys.stderr)
        return _say("interrupted", ExitCode.INTERRUPTED)
    except KeyboardInterrupt:
        return _say("interrupted", ExitCode.INTERRUPTED)
    except ImportError as problem:
        from gpu_plan.planner.trace.shipped.needed import install_line

        line = install_line(problem)
        return _internal(problem, words) if line is None else _say(f"error: {line}", ExitCode.USAGE)
    except Exception as problem:
        return _internal(problem, words)


def entry() -> None:
    """Entry point of the console script."""
    from gpu_plan.ending import streams
    from gpu_plan.ending.leave import leave

    streams.guard()
    try:
        code = main()
    except SystemExit as left:  # `--help` of a verb
        code = left.code if isinstance(left.code, int) else int(ExitCode.OK)
    problem = streams.emptied()
    if problem is not None:
        streams.abandon_stdout()
        if code in (ExitCode.OK, ExitCode.NOTHING_FITS) and not isinstance(problem, ReaderGoneError):
            code = _say(f"error: {problem}", problem.exit_code)
    leave(code)


def _say(line: str, code: ExitCode) -> int:
    print(f"plan: {line}", file=sys.stderr)
    return int(code)


def _internal(problem: Exception, words: list[str]) -> int:
    from gpu_plan.ending.internal import keep, refusal

    refused = refusal(problem)
    if refused is not None:
        return _say(f"error: this machine refuses to go on: {refused}", ExitCode.UNREACHABLE)
    return _say(keep(problem, words), ExitCode.INTERNAL)


def _check_working_directory() -> None:
    """UnreachableError where it was deleted: every path is read from there, and children start there."""
    try:
        os.getcwd()
    except OSError:
        raise UnreachableError("the working directory is not there any more: change to one that is") from None


def _run(words: list[str]) -> int:
    own, script_words = split_at_dashes(words)
    if own and own[0] in VERBS:
        return _run_verb(own[0], own[1:], script_words)
    module = import_module("gpu_plan.commands.plan")
    return int(module.run_words(own, script_words))


def _run_verb(verb: str, words: list[str], script_words: list[str]) -> int:
    module = import_module(VERBS[verb])
    takes_script_words = getattr(module, "TAKES_SCRIPT_WORDS", False)
    if script_words and not takes_script_words:
        raise UsageError(f"`plan {verb}` takes nothing after --")
    args = verb_parser(verb).parse_args(words)
    return int(module.run(args, script_words) if takes_script_words else module.run(args))


def split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments before the first `--`, and those after it."""
    listed = list(words)
    if "--" not in listed:
        return listed, []
    at = listed.index("--")
    return listed[:at], listed[at + 1 :]
