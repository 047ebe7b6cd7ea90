"""What a function of a Python file would build, read from its text: calls, constants, sums, assignments; nothing runs.

torchtitan keeps its configurations as functions that return one call of nested dataclasses, or change another's result.
Whatever is computed otherwise is `Unknown`, and told where it is asked for.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_plan.planner.errors import InputError

_DEEPEST = 12
_LARGEST = 2**53


@dataclass(slots=True)
class Call:
    """A call by its name, without a trailing `.Config`: `ParallelismConfig`, `SelectiveAC`."""

    name: str
    positional: tuple[object, ...] = ()
    named: dict[str, object] = field(default_factory=dict)
    line: int = 0

    @property
    def builds(self) -> bool:
        """Whether it makes one of a class's objects: classes are written with capitals, functions without."""
        return self.name[:1].isupper()


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is computed in a way that is not followed."""

    line: int


def functions(text: str, where: str) -> Mapping[str, ast.FunctionDef]:
    """Functions of a file by name; InputError for what is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(f"{where} is not valid Python" + (f" (line {line})" if line else "")) from None
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def built(name: str, known: Mapping[str, ast.FunctionDef], where: str, depth: int = 0) -> object:
    """What function `name` returns; InputError for a statement that is not followed."""
    if depth > _DEEPEST:
        raise InputError(f"{where}: {name} calls itself, or more than {_DEEPEST} others")
    names: dict[str, object] = {}
    for statement in known[name].body:
        if isinstance(statement, ast.Return):
            return (
                Unknown(statement.lineno)
                if statement.value is None
                else _value(statement.value, names, known, where, depth)
            )
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            _assign(statement.targets[0], _value(statement.value, names, known, where, depth), names, statement.lineno)
        elif isinstance(statement, ast.FunctionDef):
            names[statement.name] = Unknown(statement.lineno)
        elif not isinstance(statement, ast.Assert | ast.Pass | ast.Import | ast.ImportFrom) and not _is_text(statement):
            raise InputError(f"{where}: line {statement.lineno} of {name} is computed: nothing here runs to know it")
    raise InputError(f"{where}: {name} returns nothing")


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _assign(target: ast.expr, value: object, names: dict[str, object], line: int) -> None:
    """`x = ...`, or `x.part.key = ...` where x is a call."""
    parts = _dotted(target)
    if not parts:
        return
    if len(parts) == 1:
        names[parts[0]] = value
        return
    holder = names.get(parts[0], Unknown(line))
    for part in parts[1:-1]:
        if not isinstance(holder, Call):
            return
        holder = holder.named.setdefault(part, Call(part))
    if isinstance(holder, Call):
        holder.named[parts[-1]] = value


def _dotted(node: ast.expr) -> list[str]:
    """`a.b.c` as its parts; none for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _value(
    node: ast.expr, names: Mapping[str, object], known: Mapping[str, ast.FunctionDef], where: str, depth: int
) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, Unknown(node.lineno))
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item, names, known, where, depth) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, names, known, where, depth)
        return -inner if isinstance(inner, int | float) else Unknown(node.lineno)
    if isinstance(node, ast.BinOp):
        return _computed(
            node, _value(node.left, names, known, where, depth), _value(node.right, names, known, where, depth)
        )
    if isinstance(node, ast.Call):
        return _called(node, names, known, where, depth)
    return Unknown(getattr(node, "lineno", 0))


def _computed(node: ast.BinOp, left: object, right: object) -> object:
    """Products and sums of whole numbers."""
    if not isinstance(left, int) or not isinstance(right, int) or max(abs(left), abs(right)) > _LARGEST:
        return Unknown(node.lineno)
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return left // right if isinstance(node.op, ast.FloorDiv) and right else Unknown(node.lineno)


def _called(
    node: ast.Call, names: Mapping[str, object], known: Mapping[str, ast.FunctionDef], where: str, depth: int
) -> object:
    parts = _dotted(node.func)
    if not parts:
        return Unknown(node.lineno)
    if len(parts) == 1 and parts[0] in known and not node.args and not node.keywords:
        return built(parts[0], known, where, depth + 1)
    positional = tuple(_value(item, names, known, where, depth) for item in node.args)
    named = {item.arg: _value(item.value, names, known, where, depth) for item in node.keywords if item.arg is not None}
    name = next((part for part in reversed(parts) if part != "Config"), "Config")
    return Call(name, positional, named, node.lineno)
