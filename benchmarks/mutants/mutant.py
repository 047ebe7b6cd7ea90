"""The lists of mutants, read, and checked against the sources that they change (I/O: reads)."""

import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = Path(__file__).parent / "lists"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault: `old` stands once in `path`, and `new` takes its place."""

    topic: str
    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    """The fast tests that belong to the file, those that are likeliest to notice first."""
    equivalent: str = ""
    """Why no test can notice: what the program does is the same. Empty: a test has to."""

    def changed(self, text: str) -> str:
        """The file's text with the fault in it. Raises ValueError where the old text is not there exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path}: {self.name}: the old text stands there {text.count(self.old)} times")
        return text.replace(self.old, self.new)

    def digest(self, root: Path = ROOT) -> str:
        """Of the fault, the file and its tests: a result stands as long as none of them is changed."""
        whole = hashlib.sha256()
        for part in (self.name, self.old, self.new, *(self._text(root, path) for path in (self.path, *self.tests))):
            whole.update(part.encode() + b"\0")
        return whole.hexdigest()[:16]

    @staticmethod
    def _text(root: Path, path: str) -> str:
        return (root / path).read_text()


def mutants(lists: Path = LISTS) -> Iterator[Mutant]:
    """All of them, file by file."""
    for file in sorted(lists.glob("*.toml")):
        with file.open("rb") as content:
            value = tomllib.load(content)
        for entry in value["file"]:
            for given in entry["mutants"]:
                tests = tuple(given.get("tests", entry["tests"]))
                rest = {key: text for key, text in given.items() if key != "tests"}
                yield Mutant(topic=file.stem, path=entry["path"], tests=tests, **rest)
