"""The command `plan`: splits words, picks the verb, turns errors into one line and an exit code."""

import sys
from collections.abc import Sequence
from importlib import import_module

from gpu_plan.planner.errors import ExitCode, NotBuiltError, PlanError, UsageError
from gpu_plan.verbs import LATER_VERBS, VERBS


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; gives its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return int(_run(words))
    except PlanError as problem:
        print(f"plan: error: {problem}", file=sys.stderr)
        return int(problem.exit_code)
    except KeyboardInterrupt:
        print("plan: interrupted", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of stdout has gone (`plan ... | head`): nothing is left to say.
        sys.stderr.close()
        return int(ExitCode.OK)


def entry() -> None:
    """Entry point of the console script."""
    sys.exit(main())


def _run(words: list[str]) -> int:
    own, script_words = split_at_dashes(words)
    if own and own[0] in LATER_VERBS:
        raise NotBuiltError(f"`plan {own[0]}`")
    if own and own[0] in VERBS:
        return _run_verb(own[0], own[1:], script_words)
    module = import_module("gpu_plan.commands.plan")
    return int(module.run_words(own, script_words))


def _run_verb(verb: str, words: list[str], script_words: list[str]) -> int:
    from gpu_plan.planner.options.parser import Parser

    module = import_module(VERBS[verb])
    takes_script_words = getattr(module, "TAKES_SCRIPT_WORDS", False)
    if script_words and not takes_script_words:
        raise UsageError(f"`plan {verb}` takes nothing after --")
    parser = Parser(prog=f"plan {verb}", allow_abbrev=False, description=module.__doc__)
    module.add_arguments(parser)
    args = parser.parse_args(words)
    return int(module.run(args, script_words) if takes_script_words else module.run(args))


def split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments before the first `--`, and those after it."""
    listed = list(words)
    if "--" not in listed:
        return listed, []
    at = listed.index("--")
    return listed[:at], listed[at + 1 :]
