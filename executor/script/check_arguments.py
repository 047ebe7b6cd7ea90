"""Whether a script's own argparse would refuse the words after `--`, where its text tells that for certain."""

import argparse
import ast
import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import NoReturn

from gpu_plan.executor.script.loop import dotted
from gpu_plan.executor.script.option import constant, keywords
from gpu_plan.executor.script.read import Script
from gpu_plan.planner.nearest import did_you_mean

_PARSER_WORDS = frozenset(
    ["description", "formatter_class", "prog", "usage", "epilog", "allow_abbrev", "add_help", "argument_default"]
)
_ACTIONS = frozenset(["store", "store_const", "store_true", "store_false", "append", "append_const", "count", "extend"])
_TYPES = {"int": int, "float": float, "str": str}
_OTHER_WAYS = frozenset(
    ["parse_known_args", "parse_known_intermixed_args", "parse_intermixed_args", "add_subparsers", "HfArgumentParser"]
)


class _UnknownError(Exception):
    """The parser cannot be rebuilt from the text alone."""


class _RejectedError(Exception):
    """What argparse says of the words."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _RejectedError(message)


def rejected(script: Script, words: Sequence[str]) -> str | None:
    """Why the script would end at once with these words, in one line; None where it would not, or cannot be known.

    The parser is built again from its `add_argument` calls and reads the words itself, so that abbreviations, counts
    and types are judged as the script will. Only a single complete argparse parser is: no subcommands, no
    parse_known_args, nothing added by code elsewhere.
    """
    try:
        parser = _rebuilt(script.tree)
    except (_UnknownError, argparse.ArgumentError, ValueError, TypeError):
        return None
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args(list(words))
    except _RejectedError as error:
        return f"{script.path} {_said(str(error), parser)}"
    except (SystemExit, argparse.ArgumentError, ValueError, TypeError, KeyError):
        return None
    return None


def _said(message: str, parser: argparse.ArgumentParser) -> str:
    unknown = message.removeprefix("unrecognized arguments: ")
    if unknown == message:
        return f"would refuse its arguments: {message}"
    first = unknown.split()[0]
    known = [spelling for action in parser._actions for spelling in action.option_strings]
    return f"takes no argument {first}.{did_you_mean(first.partition('=')[0], known, limit=1)}"


def _rebuilt(tree: ast.Module) -> argparse.ArgumentParser:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [dotted(call.func).rpartition(".")[2] for call in calls]
    made = [call for call, name in zip(calls, names, strict=True) if name == "ArgumentParser"]
    if len(made) != 1 or _OTHER_WAYS & set(names) or _touches_argv(tree):
        raise _UnknownError
    given = keywords(made[0])
    if set(given) - _PARSER_WORDS or len(given) != len(made[0].keywords):
        raise _UnknownError
    parses = [call for call, name in zip(calls, names, strict=True) if name == "parse_args"]
    if len(parses) != 1 or parses[0].args or parses[0].keywords or _leaves(tree, calls):
        raise _UnknownError
    parser = _Parser(
        allow_abbrev=constant(given.get("allow_abbrev")) is not False,
        add_help=constant(given.get("add_help")) is not False,
    )
    for call, certain in _additions(tree):
        _add(parser, call, certain)
    return parser


def _touches_argv(tree: ast.Module) -> bool:
    """Whether the words may be changed before they are parsed."""
    return any(isinstance(node, ast.Attribute) and dotted(node) == "sys.argv" for node in ast.walk(tree))


def _leaves(tree: ast.Module, calls: list[ast.Call]) -> bool:
    """Whether the parser, or a group of it, is handed to code that is not in this script."""
    holders = {
        dotted(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        and dotted(node.value.func).rpartition(".")[2]
        in ("ArgumentParser", "add_argument_group", "add_mutually_exclusive_group")
        for target in node.targets
    }  # fmt: skip
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return any(
        dotted(word) in holders and dotted(call.func) not in own
        for call in calls
        for word in (*call.args, *(entry.value for entry in call.keywords))
    )


def _additions(tree: ast.AST, certain: bool = True) -> Iterator[tuple[ast.Call, bool]]:
    """Every `add_argument` call, and whether it runs whatever happens."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "add_argument":
            yield node, certain
        inside = certain and not isinstance(node, (ast.If, ast.Try, ast.For, ast.While, ast.IfExp, ast.With))
        yield from _additions(node, inside)


def _add(parser: argparse.ArgumentParser, call: ast.Call, certain: bool) -> None:
    spellings = [value for word in call.args if isinstance(value := constant(word), str)]
    given = keywords(call)
    if len(spellings) != len(call.args) or len(given) != len(call.keywords) or not spellings:
        raise _UnknownError
    positional = not spellings[0].startswith("-")
    if positional and not certain:
        raise _UnknownError
    words: dict[str, object] = {}
    action = constant(given.get("action"))
    if "action" in given:
        if dotted(given["action"]).endswith("BooleanOptionalAction"):
            words["action"] = argparse.BooleanOptionalAction
        elif isinstance(action, str) and action in _ACTIONS:
            words["action"] = action
        else:
            raise _UnknownError
    for name in ("nargs", "const", "dest"):
        if name in given:
            words[name] = constant(given[name])
            if name != "const" and words[name] is None:
                raise _UnknownError
    if not positional and certain and constant(given.get("required")) is True:
        words["required"] = True
    if (action in (None, "store", "append", "extend") and "action" not in words) or action in ("append", "extend"):
        _add_type(words, given)
    parser.add_argument(*spellings, **words)  # type: ignore[arg-type]


def _add_type(words: dict[str, object], given: dict[str, ast.expr]) -> None:
    """Type and choices, where both are known; a type of the script's own takes any text here."""
    kind = dotted(given["type"]) if "type" in given else "str"
    if kind not in _TYPES:
        return
    words["type"] = _TYPES[kind]
    choices = constant(given.get("choices"))
    if isinstance(choices, (list, tuple, set)):
        words["choices"] = list(choices)
