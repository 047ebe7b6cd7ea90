"""Numbers in a script that stand in its text: written there, named once, or an option with a known value."""

import ast
import math
from collections.abc import Mapping, Sequence

from gpu_plan.executor.script.loop import dotted
from gpu_plan.executor.script.option import Option, ScriptOptions, constant


class Literals:
    """What expressions of one script are worth when it is started with these words."""

    def __init__(self, tree: ast.Module, options: ScriptOptions, words: Sequence[str]) -> None:
        self._options = options
        self._words = words
        self._assigned = _assigned(tree)

    def number(self, node: ast.expr | None) -> float | None:
        """The number that `node` is, an option's by the words or its default; None where only a run can tell."""
        written = _number(constant(node))
        if written is not None or node is None:
            return written
        name = dotted(node)
        if "." in name:
            return self._of_option(name.rpartition(".")[2])
        return self.number(self._assigned[name]) if name in self._assigned else self._of_option(name)

    def whole(self, node: ast.expr | None) -> int | None:
        """The same for a whole number of 1 or more."""
        found = self.number(node)
        return int(found) if found is not None and found >= 1 and found == int(found) else None

    def _of_option(self, name: str) -> float | None:
        option = self._options.by_word(name) if name else None
        if option is None:
            return None
        given = last_value(option, self._words)
        return _number(option.default) if given is None else _number(constant_of(given))


def last_value(option: Option, words: Sequence[str]) -> str | None:
    """The last value that the words give to an option by one of its whole spellings; None where they give none."""
    found = None
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in option.spellings:
            found = value if equals else words[index + 1] if index + 1 < len(words) else None
    return found


def constant_of(text: str) -> object:
    """A word as the literal that it spells; None for any other."""
    try:
        return constant(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _assigned(tree: ast.Module) -> Mapping[str, ast.expr]:
    """Names that the script assigns exactly once, and what to; none that stands for several things, or a parameter."""
    found: dict[str, ast.expr] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if value is not None else []  # type: ignore[attr-defined]
        for target in targets:
            if isinstance(target, ast.Name) and value is not None and not _reads(value, target.id):
                twice |= {target.id} & found.keys()
                found[target.id] = value
            elif isinstance(target, ast.Name):
                twice.add(target.id)
        if isinstance(node, (ast.AugAssign, ast.For)) and isinstance(node.target, ast.Name):
            twice.add(node.target.id)
        if isinstance(node, ast.arg):
            twice.add(node.arg)
    return {name: value for name, value in found.items() if name not in twice}


def _reads(value: ast.expr, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))
