"""Options that `add_argument` calls declare."""

import ast

from gpu_plan.executor.script.loop import dotted
from gpu_plan.executor.script.option import Option, Takes, constant, keywords, make_option, strings

_FLAG_ACTIONS = frozenset({"store_true", "store_false", "store_const", "count", "append_const", "help", "version"})


def of_argparse(call: ast.Call) -> list[Option]:
    spellings = [word for word in strings(call.args) if word.startswith("-")]
    if not spellings:
        return []
    given = keywords(call)
    action, nargs = constant(given.get("action")), constant(given.get("nargs"))
    takes: Takes = "value"
    if action in _FLAG_ACTIONS:
        takes = "flag"
    elif nargs in ("*", "+") or (isinstance(nargs, int) and nargs > 1):
        takes = "many"
    elif nargs == "?":
        takes = "boolean"
    option = make_option(spellings, takes, given, call.lineno)
    if dotted(given.get("action", call.func)).endswith("BooleanOptionalAction"):
        long = next((word for word in spellings if word.startswith("--")), spellings[0])
        off = "--no-" + long.removeprefix("--")
        option = Option(
            name=option.name, spellings=(*spellings, off), takes="flag", help=option.help, off=off, line=call.lineno
        )
    return [option]
