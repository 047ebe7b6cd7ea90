"""Digests of what a Python source says: comments, docstrings, layout and line numbers do not count. Pure."""

import ast
import hashlib
from collections.abc import Collection, Iterator
from typing import TypeVar

_LENGTH = 16
_Statement = TypeVar("_Statement", bound=ast.stmt)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Source:
    """One parsed file. `symbols` are dotted names inside it: functions, classes, constants, fields; "" is the file."""

    def __init__(self, text: str) -> None:
        """Raises SyntaxError for a text that is no Python of this interpreter."""
        self._tree = ast.parse(text)
        self.symbols: dict[str, list[ast.AST]] = {"": [self._tree]}
        for name, node in _defined(self._tree, "", in_function=False):
            self.symbols.setdefault(name, []).append(node)

    def imports(self) -> list[ast.ImportFrom]:
        """Every `from ... import ...` of the file outside of functions."""
        return list(_statements(self._tree, ast.ImportFrom))

    def digest(self, symbol: str, held: Collection[str] = ()) -> str | None:
        """Digest of `symbol`, None where the file has none.

        What stands inside it and is itself among `held` is left out: an edited function changes one digest, not also
        those of the class and the file around it.
        """
        nodes = self.symbols.get(symbol)
        if nodes is None:
            return None
        inner = {id(node) for name in held if name != symbol for node in self.symbols.get(name, ())}
        inner -= {id(node) for node in nodes}
        total = hashlib.sha256()
        for node in nodes:
            for word in _words(node, inner):
                total.update(word.encode("utf-8", "surrogatepass"))
                total.update(b"\0")
        return total.hexdigest()[:_LENGTH]


def _defined(node: ast.AST, prefix: str, *, in_function: bool) -> Iterator[tuple[str, ast.AST]]:
    """Dotted names with what defines them: functions and classes at any depth, names assigned outside of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield prefix + child.name, child
            inside = not isinstance(child, ast.ClassDef)
            yield from _defined(child, f"{prefix}{child.name}.", in_function=inside)
        elif isinstance(child, ast.stmt | ast.excepthandler):
            if not in_function:
                yield from ((prefix + name, child) for name in _assigned(child))
            yield from _defined(child, prefix, in_function=in_function)


def _statements(node: ast.AST, kind: type[_Statement]) -> Iterator[_Statement]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, kind):
            yield child
        elif isinstance(child, ast.stmt | ast.excepthandler) and not isinstance(child, Definition):
            yield from _statements(child, kind)


def _assigned(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _words(node: ast.AST, inner: set[int]) -> Iterator[str]:
    """The code as a flat list of words that no version of Python spells otherwise: empty fields are left out.

    `ast.dump` and `ast.unparse` differ between Python 3.11 and 3.14: type parameters, empty lists, quotes.
    """
    if id(node) in inner:
        yield "held elsewhere"
        return
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "kind", "type_comment", "type_ignores", "lineno") or value is None or value == []:
            continue
        if name == "body" and isinstance(node, Definition | ast.Module):
            value = _without_docstring(value)
        yield name
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield from _words(item, inner)
            else:
                yield f"{type(item).__name__} {item!r}"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_text else body
