"""The page of all messages: every text of the code that a user can meet, read off the syntax trees."""

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("planner", "executor", "reports", "tui", "src/gpu_plan/api", "src/gpu_plan/commands", "src/gpu_plan/ending")

_HEAD = """\
# Messages

Every text of the program that a user can meet, as it stands in the code; `…` stands for a value. Errors are one line,
`plan: error: …` on stderr; what their exit codes mean stands in [Exit codes](exit-codes.md). The page is made from the
code when the site is built.
"""
_SKIPPED = ("planner/upstream/",)


@dataclass(frozen=True, slots=True)
class Message:
    """One text and where it stands."""

    text: str
    kind: str
    """Class of the error that it is raised as; empty for everything else that is shown."""
    module: str


@functools.cache
def messages(folders: tuple[str, ...] = FOLDERS) -> tuple[Message, ...]:
    """Every text, in the order of the files."""
    found = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            if not module.startswith(_SKIPPED):
                found += list(_of_module(path.read_text(encoding="utf-8"), module))
    return tuple(found)


def _of_module(source: str, module: str) -> Iterator[Message]:
    tree = ast.parse(source)
    quiet = {id(text) for text in _quiet(tree)}
    raised: set[int] = set()
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind = ast.unparse(node.exc.func).rpartition(".")[2]
            for text in _texts(node.exc):
                raised.add(id(text))
                inside |= {id(part) for part in ast.walk(text) if part is not text}
                said = rendered(text)
                if kind.endswith("Error") and " " in said:
                    yield Message(said, kind, module)
    for node in ast.walk(tree):
        if id(node) in raised or id(node) in quiet or id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node) if part is not node}
        if isinstance(node, ast.JoinedStr | ast.Constant) and is_sentence(said := rendered(node)):
            yield Message(said, "", module)


def _texts(call: ast.Call) -> Iterator[ast.expr]:
    """The texts of a call's arguments, each whole."""
    inside: set[int] = set()
    for argument in call.args:
        for node in ast.walk(argument):
            if id(node) in inside:
                continue
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                inside |= {id(part) for part in ast.walk(node)}
                yield node


def _quiet(tree: ast.AST) -> Iterator[ast.AST]:
    """Texts that nobody is shown: docstrings, texts below fields, annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        for name in ("annotation", "returns"):
            said = getattr(node, name, None)
            if said is not None:
                yield from ast.walk(said)


def rendered(node: ast.expr) -> str:
    """A text with `…` for its values."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = (rendered(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
        return "".join(parts)
    return ""


def is_sentence(text: str) -> bool:
    """Whether a text is words for people: two of them at least, and no code, path, pattern or format."""
    words = re.findall(r"[A-Za-z]{2,}", text)
    if sum("_" in word for word in text.split()) * 2 > len(text.split()):
        return False  # a list of names
    return len(words) >= 2 and " " in text.strip() and not re.search(r"[{}<>\\^$]|\bdef |import |==|\bself\.", text)


def messages_page() -> str:
    """The page, as Markdown."""
    found = messages()
    parts = [_HEAD]
    errors = [message for message in found if message.kind]
    for kind in sorted({message.kind for message in errors}):
        parts.append(f"## {_titles().get(kind, kind)}\n")
        parts += _list([message for message in errors if message.kind == kind])
    parts.append("## Notes, warnings, reports and help\n")
    parts += _list([message for message in found if not message.kind])
    return "\n".join(parts)


def _titles() -> Mapping[str, str]:
    return {
        "UsageError": "Errors: words that do not go together (exit code 2)",
        "InputError": "Errors: a file or value (exit code 2)",
        "UnreachableError": "Errors: what cannot be reached (exit code 3)",
        "PreflightError": "Errors: what this machine or script cannot run (exit code 4)",
        "ValueError": "Errors: contradictions in a document (exit code 2)",
    }


def _list(found: Iterable[Message]) -> Iterator[str]:
    module = ""
    for message in found:
        if message.module != module:
            module = message.module
            yield f"\n`{module}`\n"
        text = " ".join(message.text.split()).replace("`", "'")
        yield f"- `{text}`"
    yield ""
