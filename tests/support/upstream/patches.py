"""What code here patches in other projects, or takes from them though it is private, read off its syntax tree."""

import ast
import functools
from collections.abc import Iterator

from gpu_plan.planner.upstream.digests import Source
from gpu_plan.planner.upstream.sources import site_of, source_of
from tests.support.upstream.projects import PROJECTS

_PACKAGES = {project.package: project for project in PROJECTS if project.package}
_DEPTH = 6


def touched(text: str) -> set[tuple[str, str]]:
    """(file, symbol) of everything that a module patches, or names though a part of its name begins with `_`."""
    tree = ast.parse(text)
    reader = _Reader(tree)
    dotted = {name for name in reader.private() if name} | set(reader.patched())
    return {place for name in dotted if (place := located(name))}


class _Reader:
    """One module: what its names stand for, as dotted names of other projects."""

    def __init__(self, tree: ast.Module) -> None:
        self._nodes = list(ast.walk(tree))
        self._names = dict(_imported(self._nodes))
        self._values: dict[str, list[ast.expr]] = {}
        for node in self._nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._values.setdefault(node.targets[0].id, []).append(node.value)
            elif isinstance(node, ast.For):
                self._bind(node.target, node.iter)
        self._strings = sorted(
            {node.value for node in self._nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        )

    def private(self) -> Iterator[str]:
        """Dotted names with a part that begins with one underscore, as far as another project's."""
        for name in self._names.values():
            yield name if _is_private(name) else ""
        for node in self._nodes:
            if isinstance(node, ast.Attribute):
                yield from (name for name in self._dotted(node) if _is_private(name))

    def patched(self) -> Iterator[str]:
        """Dotted names that `mock.patch.object`, `mock.patch` and `setattr` replace."""
        for node in self._nodes:
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = ast.unparse(node.func)
            if called == "mock.patch" and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)
            elif called in ("mock.patch.object", "setattr") and len(node.args) > 1:
                for home in self._dotted(node.args[0]):
                    yield from (f"{home}.{name}" for name in self._texts(node.args[1], home))

    def _bind(self, target: ast.expr, values: ast.expr) -> None:
        items = values.elts if isinstance(values, ast.Tuple | ast.List) else []
        if isinstance(target, ast.Name):
            self._values.setdefault(target.id, []).extend(items)
        elif isinstance(target, ast.Tuple):
            for item in items:
                if isinstance(item, ast.Tuple):
                    for name, value in zip(target.elts, item.elts, strict=False):
                        if isinstance(name, ast.Name):
                            self._values.setdefault(name.id, []).append(value)

    def _dotted(self, node: ast.expr, depth: int = _DEPTH) -> list[str]:
        """The dotted names that an expression may stand for."""
        if not depth:
            return []
        if isinstance(node, ast.Attribute):
            return [f"{home}.{node.attr}" for home in self._dotted(node.value, depth - 1)]
        if isinstance(node, ast.Name):
            if node.id in self._names:
                return [self._names[node.id]]
            return [name for value in self._values.get(node.id, ()) for name in self._dotted(value, depth - 1)]
        return []

    def _texts(self, node: ast.expr, home: str) -> list[str]:
        """The texts that an expression may be: itself, those it was assigned, else all that `home` has."""
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        known = self._values.get(node.id, []) if isinstance(node, ast.Name) else []
        texts = [value.value for value in known if isinstance(value, ast.Constant) and isinstance(value.value, str)]
        return [text for text in texts or self._strings if text.isidentifier() and _has(home, text)]


def _imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                if name.partition(".")[0] in _PACKAGES:
                    yield alias.asname or name, name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _PACKAGES:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def _has(home: str, name: str) -> bool:
    if home == "torch._C":
        return _is_private(name)
    place = located(f"{home}.{name}")
    return place is not None and place[1].rpartition(".")[2] == name


@functools.cache
def located(dotted: str, depth: int = _DEPTH) -> tuple[str, str] | None:
    """File and symbol of a dotted name, through what modules import from each other; None where no Python defines it.

    What compiled code defines (`torch._C._cuda_getDevice`) is the file `torch/_C`, of which no wheel holds the source.
    """
    parts = dotted.split(".")
    if parts[0] not in _PACKAGES or not depth:
        return None
    if parts[:2] == ["torch", "_C"]:
        return ("torch/_C", ".".join(parts[2:])) if len(parts) > 2 else None
    for length in range(len(parts), 0, -1):
        file = _module_file("/".join(parts[:length]))
        if file is None:
            continue
        rest = ".".join(parts[length:])
        source = source_of(file)
        if source is None or not rest:
            return None  # a module as a whole: what is used of it is named further on
        if rest in source.symbols:
            return file, rest
        return _imported_there(source, file, rest, depth)
    return None


def _imported_there(source: Source, file: str, rest: str, depth: int) -> tuple[str, str] | None:
    """Follows `from .x import name` of a module of another project."""
    first, _, more = rest.partition(".")
    package = file.removesuffix("/__init__.py").removesuffix(".py").split("/")
    starred = []
    for node in source.imports():
        base = package[: len(package) - node.level + (1 if file.endswith("/__init__.py") else 0)] if node.level else []
        home = ".".join([*base, *filter(None, [node.module])])
        for alias in node.names:
            if (alias.asname or alias.name) == first:
                return located(".".join([home, alias.name, *filter(None, [more])]), depth - 1)
            if alias.name == "*" and not (more and home == "torch._C"):
                starred.append(home)
    found = next(filter(None, (located(f"{home}.{rest}", depth - 1) for home in starred)), None)
    if found:
        return found
    outer, _, inner = rest.rpartition(".")
    return located_class(file, outer, inner, source) if outer else None


def located_class(file: str, outer: str, inner: str, source: Source) -> tuple[str, str] | None:
    """A method that a class inherits: the class itself stands for it."""
    return (file, outer) if inner and outer in source.symbols else None


def _module_file(path: str) -> str | None:
    site = site_of(path.partition("/")[0])
    if site is None:
        return None
    return next((file for file in (f"{path}.py", f"{path}/__init__.py") if (site / file).is_file()), None)
