"""The table of what is mirrored or patched, made from this project's code and the installed packages."""

import functools
import re
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import metadata

from gpu_plan.planner.upstream.sources import source_of
from gpu_plan.planner.upstream.table import PATH, Held, table_text
from tests.support.upstream.mentions import mentions
from tests.support.upstream.patches import touched
from tests.support.upstream.places import ROOT, Place, own_modules, place
from tests.support.upstream.projects import BY_NAME, Project, named_last, version_in
from tests.support.upstream.texts import texts

FOLDERS = ("planner", "executor", "reports", "tui")
_FACTS = "planner/workload/stacks/facts"
_SELF = "planner/upstream/"
_FILE_NAMES = re.compile(r"\w\.(?:py|cpp|cuh|cu|hpp|h)\b")
_PACKAGES = re.compile(
    rf"import\b.*\b(?:{'|'.join(project.package for project in BY_NAME.values() if project.package)})\b|"
    rf"from (?:{'|'.join(project.package for project in BY_NAME.values() if project.package)})\b"
)


@dataclass(slots=True)
class Gathered:
    """Who names or patches what: (project, file, symbol) -> modules; and the versions that texts give projects."""

    users: dict[tuple[str, str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    versions: dict[str, str] = field(default_factory=dict)

    def take(self, module: str, text: str) -> None:
        """Adds what one module names and patches."""
        if _FILE_NAMES.search(text) is None and _PACKAGES.search(text) is None:
            return
        said = list(texts(text)) if _FILE_NAMES.search(text) else []
        whole = " ".join(said)
        default = named_last(said[0] if said else "") or named_last(whole)
        for one in said:
            for mention in mentions(one):
                meant = place(mention, module, default)
                if meant is not None:
                    self._name(meant, module, whole)
        for file, symbol in touched(text) if _PACKAGES.search(text) else ():
            self.users[_project_of(file).name, file, symbol].add(module)

    def take_facts(self, module: str, text: str) -> None:
        """Adds the sources that a stack's facts name; a project that is not installed stands at the file's commit."""
        document = tomllib.loads(text)
        project = BY_NAME.get(document["project"])
        version = f"{document['version']} {document['commit'][:7]}".strip()
        for fact in document["facts"]:
            for mention in mentions(f"{document['project']} {fact['source']}"):
                meant = place(mention, module, project)
                if meant is not None:
                    self._name(meant, module, "")
        if project is not None and not project.package:
            self.versions.setdefault(project.name, version)

    def _name(self, meant: Place, module: str, text: str) -> None:
        version = version_in(text, meant.project)
        if version:
            self.versions.setdefault(meant.project.name, version)
        for symbol in meant.symbols or ("",):
            self.users[meant.project.name, meant.file, symbol].add(module)


def gathered() -> Gathered:
    """What all modules of this project name and patch."""
    found = Gathered()
    for path in own_modules(FOLDERS):
        module = path.relative_to(ROOT).as_posix()
        if not module.startswith(_SELF):
            found.take(module, path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / _FACTS).glob("*.toml")):
        found.take_facts(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    _join_spellings(found)
    return found


def rows() -> list[Held]:
    """The table as it should be now."""
    found = gathered()
    held = defaultdict(set)
    for _, file, symbol in found.users:
        held[file].add(symbol)
    return sorted(_row(found, key, held[key[1]]) for key in found.users)


def _row(found: Gathered, key: tuple[str, str, str], held: set[str]) -> Held:
    name, file, symbol = key
    project = BY_NAME[name]
    source = source_of(file) if project.package and file.endswith(".py") else None
    digest = source.digest(symbol, held) if source else None
    version = _installed(project) if project.package else found.versions.get(name, "")
    users = set().union(*(found.users[name, file, outer] for outer in held if _is_around(outer, symbol)))
    return Held(name, version, file, symbol, digest or "", " ".join(sorted(users)))


def _is_around(outer: str, symbol: str) -> bool:
    return outer in ("", symbol) or symbol.startswith(f"{outer}.")


@functools.cache
def _installed(project: Project) -> str:
    return metadata.version(project.name).partition("+")[0]


def _project_of(file: str) -> Project:
    package = file.partition("/")[0]
    return next(project for project in BY_NAME.values() if project.package == package)


def _join_spellings(found: Gathered) -> None:
    """Files that no wheel holds are named by parts of their path: the longest spelling stands for all."""
    files = {(name, file) for name, file, _ in found.users}
    for name, file, symbol in list(found.users):
        longer = [other for owner, other in files if owner == name and other.endswith(f"/{file}")]
        if longer and source_of(file) is None:
            users = found.users.pop((name, file, symbol))
            found.users[name, max(longer, key=len), symbol] |= users


def refresh() -> None:
    """Writes the table."""
    PATH.write_text(table_text(rows()), encoding="utf-8")


if __name__ == "__main__":
    refresh()
