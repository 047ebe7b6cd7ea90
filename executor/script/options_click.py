"""Options of click's decorators and of typer's function parameters."""

import ast

from gpu_plan.executor.script.loop import dotted, imported_names
from gpu_plan.executor.script.option import Option, constant, keywords, make_option, strings


def of_click(tree: ast.Module) -> list[Option]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and dotted(decorator.func) in ("click.option", "option"):
                found += _click_option(decorator)
    return found


def _click_option(call: ast.Call) -> list[Option]:
    words = [word for word in strings(call.args) if word.startswith("-")]
    if not words:
        return []
    given = keywords(call)
    pairs = [word.partition("/") for word in words]
    spellings = [part.strip() for on, _, off in pairs for part in (on, off) if part.strip()]
    off = next((off.strip() for _, _, off in pairs if off.strip()), None)
    flag = off is not None or constant(given.get("is_flag")) is True or constant(given.get("count")) is True
    option = make_option(spellings, "flag" if flag else "value", given, call.lineno)
    kind = given.get("type")
    if isinstance(kind, ast.Call) and dotted(kind.func).endswith("Choice") and kind.args:
        choices = constant(kind.args[0])
        names = tuple(map(str, choices)) if isinstance(choices, (list, tuple)) else ()
        option = Option(name=option.name, spellings=option.spellings, help=option.help, choices=names, line=call.lineno)
    on = pairs[0][0].strip() if off is not None else option.name
    return [
        Option(
            name=on, spellings=option.spellings, takes=option.takes, help=option.help, choices=option.choices,
            off=off, line=call.lineno,
        )
    ]  # fmt: skip


def of_typer(tree: ast.Module) -> list[Option]:
    """Parameters with a default of the functions that `typer.run` is given or a command decorates."""
    run = {
        dotted(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func) == "typer.run" and node.args
    }
    typed = {name for name, origin in imported_names(tree).items() if origin.partition(".")[0] == "typer"}
    found: list[Option] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        commanded = bool(typed) and any(
            isinstance(decorator, ast.Call) and dotted(decorator.func).endswith(".command")
            for decorator in node.decorator_list
        )
        if node.name in run or commanded:
            found += _parameters(node)
    return found


def _parameters(function: ast.FunctionDef) -> list[Option]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = zip(positional, [*defaults, *arguments.defaults], strict=True)
    both = [*pairs, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return [option for argument, default in both if (option := _parameter(argument, default)) is not None]


def _parameter(argument: ast.arg, default: ast.expr | None) -> Option | None:
    call = default if isinstance(default, ast.Call) else None
    annotation = argument.annotation
    if isinstance(annotation, ast.Subscript) and dotted(annotation.value).endswith("Annotated"):
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        annotation = parts[0]
        call = next((part for part in parts[1:] if isinstance(part, ast.Call)), call)
    kind = dotted(call.func).rpartition(".")[2] if call is not None else ""
    if kind == "Argument" or (default is None and kind != "Option"):
        return None
    given = keywords(call) if call is not None else {}
    spellings = [word for word in strings(call.args) if word.startswith("-")] if call is not None else []
    long = "--" + argument.arg.replace("_", "-")
    spellings = spellings or [long]
    if annotation is not None and dotted(annotation) == "bool":
        off = "--no-" + long.removeprefix("--") if spellings == [long] else None
        return Option(
            name=spellings[0],
            spellings=(*spellings, off) if off else tuple(spellings),
            takes="flag",
            off=off,
            line=argument.lineno,
        )
    return make_option(spellings, "value", given, argument.lineno)
