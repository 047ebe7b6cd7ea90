"""This package's own sources, as tests that look for a word in all of them read them."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("planner", "executor", "reports", "tui", "src/gpu_plan")


def sources() -> Iterator[tuple[str, str]]:
    """Path from the repository's root, and text, of every module, those behind links once."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not any(part.is_symlink() for part in path.relative_to(ROOT).parents):
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def quoting(words: Collection[str]) -> Iterator[tuple[str, ast.Module]]:
    """The modules in which one of `words` ends a quoted text or begins a format: no other is worth parsing."""
    any_of = "|".join(re.escape(word) for word in sorted(words))
    worth = re.compile(rf"""(?:{any_of})['"{{]""")
    for where, text in sources():
        if worth.search(text):
            yield where, ast.parse(text)


def imported(text: str) -> set[str]:
    """Top-level names that a module imports; not its own package, and nothing relative."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def may_import(text: str) -> set[str]:
    """At least the names that `imported` gives, by the words that begin a line: a hundredth of the work."""
    modules = re.findall(r"^\s*from\s+(\w+)", text, re.MULTILINE)
    for line in re.findall(r"^\s*import\s+(.+)", text, re.MULTILINE):
        modules += re.findall(r"(?:^|,)\s*(\w+)", line)
    return set(modules)
