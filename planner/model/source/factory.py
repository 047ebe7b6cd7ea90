"""`package.module:factory`: found without being imported, imported to build a model, known by its files."""

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import site
import sys
from collections.abc import Callable, Container, Iterable
from contextlib import redirect_stdout
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.model.config_reader import shown
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.neighbours import NEEDED, keep_out, stand_first
from gpu_plan.planner.plain.values import dataclass

_OURS = "gpu_plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactoryName:
    """The two halves of `package.module:factory`."""

    module: str
    attribute: str


def parse_factory(text: str) -> FactoryName:
    """`package.module:factory` taken apart. Raises InputError if either half is no dotted Python name."""
    module, _, attribute = text.partition(":")
    for half in (module, attribute):
        if not all(part.isidentifier() for part in half.split(".")):
            raise InputError(
                f"{shown(text)} is not a model: write a factory as package.module:function, or a hub id,"
                " a folder or a config.json"
            )
    return FactoryName(module=module, attribute=attribute)


def locate(name: FactoryName) -> tuple[Path, ...]:
    """The files of the factory's module and of the packages around it, found without importing any of them.

    Searched as `load` imports it: the working directory first, but for names of the standard library and of what this
    package needs; then sys.path. Raises UnreachableError if there is no such module.
    """
    files: list[Path] = []
    parents: list[str] | None = None
    parts = name.module.split(".")
    for depth, part in enumerate(parts, start=1):
        dotted = ".".join(parts[:depth])
        # By its last name: a namespace package's search asks for its parent, which has not been imported.
        spec = _top_level(part) if depth == 1 else PathFinder.find_spec(part, parents)
        if spec is None:
            raise UnreachableError(
                f"module {dotted} is not found from {os.getcwd()}: run from the folder that holds it"
            )
        if spec.has_location and spec.origin:
            files.append(Path(spec.origin))
        parents = list(spec.submodule_search_locations or ())
    return tuple(files)


def load(name: FactoryName) -> Callable[[], Any]:
    """Import the module and return the factory. What the module prints goes to stderr.

    Raises InputError in one line if importing fails, if there is no such attribute, or if it cannot be called
    without arguments; UnreachableError if there is no such module.
    """
    locate(name)
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        stand_first([folder])
        keep_out([folder])
    found: Any = _import(name.module)
    reached = name.module
    for part in name.attribute.split("."):
        if not hasattr(found, part):
            public = [known for known in dir(found) if not known.startswith("_")]
            raise InputError(f"{reached} has no {part!r}: name a function in it.{did_you_mean(part, public)}")
        found = getattr(found, part)
        reached = f"{reached}.{part}"
    return _checked(found, f"{name.module}:{name.attribute}")


def user_files_digest(modules_before: Container[str]) -> tuple[tuple[str, ...], str]:
    """The user's files among the modules imported since: sorted paths, and the digest of their contents.

    `modules_before` holds the names in sys.modules at the start. The standard library, installed packages and
    this program are left out. Data files that the factory reads are not seen.
    """
    paths: set[str] = set()
    for module_name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        mine = module_name in modules_before or module_name.partition(".")[0] == _OURS
        if not mine and isinstance(file, str) and os.path.isfile(file) and not _is_installed(file):
            paths.add(os.path.realpath(file))
    ordered = tuple(sorted(paths))
    return ordered, files_digest(ordered)


def files_digest(paths: Iterable[str | Path]) -> str:
    """sha256 over names and contents of `paths`, in their order; a missing file counts as such."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError:
            content = "missing"
        digest.update(f"{path}\0{content}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _top_level(name: str) -> ModuleSpec | None:
    installed = _installed(name)
    if installed is not None and (name in sys.stdlib_module_names or name in NEEDED):
        return installed
    here = PathFinder.find_spec(name, [os.getcwd()])
    return here if here is not None and here.origin is not None else installed or here


def _installed(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _import(module: str) -> Any:
    try:
        with redirect_stdout(sys.stderr):
            return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # SystemExit included: a script without a main guard parses arguments on import.
        place = _place(error)
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InputError(f"importing {module} fails{place}: {reason[:200]}") from None


def _place(error: BaseException) -> str:
    """` at FILE:LINE`: the innermost line of the user's own code."""
    if isinstance(error, SyntaxError):
        return f" at {error.filename}:{error.lineno}"
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if os.path.isfile(file) and not _is_installed(file) and file != __file__:
            place = f" at {file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _checked(factory: Any, shown: str) -> Callable[[], Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(factory, torch.nn.Module):
        raise InputError(f"{shown} is a module already built: name a function that builds and returns it")
    if not callable(factory):
        raise InputError(f"{shown} is a {type(factory).__name__}: name a function that returns the module")
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return factory  # type: ignore[no-any-return]
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise InputError(f"{shown} needs the argument {needed[0]!r}: name a function that needs none")
    return factory  # type: ignore[no-any-return]


@cache
def _installed_roots() -> tuple[str, ...]:
    import sysconfig

    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    roots = {path for kind in kinds if (path := sysconfig.get_path(kind))}
    roots |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(os.path.realpath(root) + os.sep for root in roots)


_SITE = re.compile(r"[\\/](?:site|dist)-packages[\\/]")


def _is_installed(file: str) -> bool:
    return os.path.realpath(file).startswith(_installed_roots()) or _SITE.search(file) is not None
