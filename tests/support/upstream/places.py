"""Which file of which project a mention means."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.planner.upstream.sources import site_of, source_of
from tests.support.upstream.mentions import Mention
from tests.support.upstream.projects import BY_NAME, HOMES, PROJECTS, Project, named_last

ROOT = Path(__file__).resolve().parents[3]
_PYTHON = ".py"
_WITH_KERNELS = ("deepspeed", "bitsandbytes")
_OUTSIDE = frozenset(project.name for project in PROJECTS if not project.package)


@dataclass(frozen=True, slots=True)
class Place:
    """A file of a project, with those of the named symbols that it defines."""

    project: Project
    file: str
    symbols: tuple[str, ...]


def place(mention: Mention, module: str, default: Project | None) -> Place | None:
    """The file that `mention` means in `module`; None where it means none of another project.

    `default` is the project that the module's text names. Among installed files of that name those of the project
    named last before the mention count, and the one that defines most of the symbols named behind it.
    """
    named = named_last(f"{mention.before} {mention.file}")
    home = HOMES.get(module)
    project = named or default
    paths = [(owner, path) for owner, path in _candidates(mention.file) if project is None or owner is project]
    paths = paths or [(owner, path) for owner, path in _candidates(mention.file) if project and project.package]
    found = [_found(mention, path, owner) for owner, path in paths]
    is_only_one = len(found) == 1 and (named is not None or "_" in mention.file) and not _is_own(mention.file)
    certain = [one for one in found if one.symbols or "/" in mention.file or is_only_one]
    if certain and not (home and not any(one.symbols for one in certain)):
        return max(certain, key=lambda one: (len(one.symbols), -len(one.file)))
    return _outside(mention, BY_NAME[home] if home else project, is_certain=home is not None)


def _outside(mention: Mention, project: Project | None, *, is_certain: bool) -> Place | None:
    """A file that no wheel holds: of another kind than Python, or of a project that is not installed."""
    if not mention.file.endswith(_PYTHON) and (project is None or project.name not in (*_WITH_KERNELS, *_OUTSIDE)):
        project = BY_NAME["torch"]
    in_wheels = project is None or (project.package and mention.file.endswith(_PYTHON))
    says_nothing = "/" not in mention.file and not mention.listed and not mention.near
    if project is None or in_wheels or (not is_certain and (says_nothing or _is_own(mention.file))):
        return None
    return Place(project, mention.file, ())


def _found(mention: Mention, file: str, owner: Project) -> Place:
    source = source_of(file)
    symbols: dict[str, str] = {}
    for name in (*mention.listed, *mention.near):
        for symbol in source.symbols if source else ():
            if symbol and (symbol == name or symbol.endswith(f".{name}")):
                symbols[symbol] = name
    return Place(owner, file, _meant(symbols))


def _meant(symbols: dict[str, str]) -> tuple[str, ...]:
    """Of the symbols (with the words that named them) those that are meant.

    Methods stand for a class that is named beside them; of a name in several classes, those of the classes that are
    named count.
    """
    classes = {symbol for symbol in symbols if any(other.startswith(f"{symbol}.") for other in symbols)}
    chosen = []
    for symbol, name in symbols.items():
        same = [other for other, word in symbols.items() if word == name and other != symbol]
        is_inside = symbol.rpartition(".")[0] in classes
        elsewhere = any(other.rpartition(".")[0] in classes for other in same)
        if symbol not in classes and (is_inside or not elsewhere):
            chosen.append(symbol)
    return tuple(chosen)


def _candidates(file: str) -> list[tuple[Project, str]]:
    """Installed files that `file` may mean: the path itself, else all that end with it."""
    places = _by_name().get(file.rpartition("/")[2], {})
    if file in places:
        return [(places[file], file)]
    return [(project, path) for path, project in places.items() if path.endswith(f"/{file}")]


@functools.cache
def _by_name() -> dict[str, dict[str, Project]]:
    """File name -> path inside the installed packages -> its project."""
    found: dict[str, dict[str, Project]] = {}
    for project in PROJECTS:
        site = site_of(project.package) if project.package else None
        for path in (site / project.package).rglob(f"*{_PYTHON}") if site else ():
            found.setdefault(path.name, {})[path.relative_to(site).as_posix()] = project
    return found


def _is_own(file: str) -> bool:
    return any(path == file or path.endswith(f"/{file}") for path in _own_files())


@functools.cache
def _own_files() -> tuple[str, ...]:
    return tuple(
        path.relative_to(ROOT).as_posix() for path in own_modules(("planner", "executor", "reports", "tui", "tests"))
    )


def own_modules(folders: Iterable[str]) -> list[Path]:
    """Python files of this project below `folders`."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
