"""The shell commands and Python blocks that README, CONTRIBUTING and docs show."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
RECIPES = sorted(path for path in (ROOT / "docs" / "extending").glob("*.md") if path.stem != "index")
"""Run by themselves: their commands need what they add."""
_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
_SHELL = ("sh", "bash", "console")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of one page."""

    page: str
    line: str
    words: tuple[str, ...]
    """Without what follows `>`."""
    written_to: str | None
    """The file behind `>`."""

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"


def commands() -> list[Command]:
    """Every line of every shell block, each once, comments cut off and continued lines joined."""
    found: dict[str, Command] = {}
    for page in PAGES:
        if page in RECIPES:
            continue
        for text in blocks(page, _SHELL):
            for line in text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    command = _command(page, words)
                    found.setdefault(command.line, command)
    return list(found.values())


def _command(page: Path, words: list[str]) -> Command:
    target = words[words.index(">") + 1] if ">" in words else None
    own = words[: words.index(">")] if ">" in words else words
    return Command(page.relative_to(ROOT).as_posix(), shlex.join(words), tuple(own), target)


def blocks(page: Path, kinds: tuple[str, ...]) -> list[str]:
    """Contents of a page's fenced blocks of these kinds."""
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [match["text"] for match in found if match["kind"] in kinds]
