"""The command-line options that a script understands, read from its syntax tree."""

import ast
from dataclasses import replace

from gpu_plan.executor.script.loop import dotted, imported_names
from gpu_plan.executor.script.option import Option, ScriptOptions, constant, keywords
from gpu_plan.executor.script.options_argparse import of_argparse
from gpu_plan.executor.script.options_click import of_click, of_typer
from gpu_plan.executor.script.options_dataclass import (
    filled_classes,
    of_dataclass,
    of_training_arguments,
    training_arguments,
)
from gpu_plan.executor.script.read import Script


def options_of(script: Script) -> ScriptOptions:
    """Options of argparse, click, typer and HfArgumentParser (own dataclasses and the library's training arguments)."""
    tree, found = script.tree, list[Option]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "add_argument":
            found += of_argparse(node)
    found += of_click(tree)
    found += of_typer(tree)
    classes = filled_classes(tree)
    own = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for name in classes:
        found += of_dataclass(own.get(name), own)
    defaults = _set_defaults(tree)
    library = training_arguments(classes, own, imported_names(tree))
    if library is not None:
        found += of_training_arguments(library)
    found = [replace(option, default=defaults.get(option.word, option.default)) for option in found]
    return ScriptOptions(
        options={spelling: option for option in reversed(found) for spelling in option.spellings},
        training_arguments=library,
        commands=_has_commands(tree),
    )


def _set_defaults(tree: ast.Module) -> dict[str, object]:
    """Literals that `parser.set_defaults(...)` gives to options, by word."""
    return {
        name: value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func).endswith(".set_defaults")
        for name, given in keywords(node).items()
        if (value := constant(given)) is not None
    }


def training_options(library: str) -> ScriptOptions:
    """What a script takes that fills a library's training arguments and nothing else."""
    found = of_training_arguments(library)
    by_spelling = {spelling: option for option in found for spelling in option.spellings}
    return ScriptOptions(options=by_spelling, training_arguments=library)


def _has_commands(tree: ast.Module) -> bool:
    called = [dotted(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if any(name.rpartition(".")[2] == "add_subparsers" for name in called):
        return True
    commands = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(dotted(d.func if isinstance(d, ast.Call) else d).endswith(".command") for d in node.decorator_list)
    ]
    groups = any(name in ("click.group", "group") for name in called)
    return groups or len(commands) > 1
