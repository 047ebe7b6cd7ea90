"""Who runs a script's training loop, read from its syntax tree."""

import ast
from collections.abc import Mapping
from typing import Literal

from gpu_plan.executor.script.read import Script

Loop = Literal["accelerate", "trainer", "lightning", "plain", "unknown"]

_LIGHTNING_PACKAGES = frozenset({"lightning", "pytorch_lightning"})
_LIGHTNING_NAMES = frozenset({"Trainer", "LightningModule"})
_TRAINER_PACKAGES = frozenset({"transformers", "trl", "setfit", "sentence_transformers"})


def loop_of(script: Script) -> Loop:
    """`accelerate` for a hand-written loop around an Accelerator, `trainer` for one of Hugging Face's trainers,
    `plain` for a loop that calls `backward` itself; `unknown` where the script shows none of these."""
    imported = imported_names(script.tree)
    called = _called(script.tree)
    # A class derived from a trainer is called by its own name.
    named = {(name.rpartition(".")[2], _origin(name, imported)) for name in called | _bases(script.tree)}
    if any(origin in _LIGHTNING_PACKAGES and name in _LIGHTNING_NAMES for name, origin in named):
        return "lightning"
    if any(origin in _TRAINER_PACKAGES and name.endswith("Trainer") for name, origin in named):
        return "trainer"
    if any(name == "Accelerator" for name, _ in named):
        return "accelerate"
    return "plain" if any(name.rpartition(".")[2] == "backward" for name in called) else "unknown"


def _origin(name: str, imported: dict[str, str]) -> str:
    """Package from which a dotted name comes, empty where the script does not import it."""
    return imported.get(name.partition(".")[0], "").partition(".")[0]


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Module from which each name of the script comes; of `import a.b as c`, `c` comes from `a.b`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = node.module or ""
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = alias.name
    return found


def _called(tree: ast.Module) -> set[str]:
    """Dotted names that are called."""
    return {name for node in ast.walk(tree) if isinstance(node, ast.Call) and (name := dotted(node.func))}


def _bases(tree: ast.Module) -> set[str]:
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name for node in classes for base in node.bases if (name := dotted(base))}


def dotted(node: ast.expr) -> str:
    """`a.b.c` for names and attributes, the last name alone where it hangs on another expression, else empty."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return ""


_IN_WORDS: Mapping[Loop, str] = {
    "accelerate": "a loop of its own around an Accelerator",
    "trainer": "a Trainer of transformers",
    "lightning": "a Lightning Trainer",
    "plain": "a plain PyTorch loop",
    "unknown": "a loop that could not be read",
}


def loop_in_words(script: Script, loop: Loop) -> str:
    """What the script runs, for people; a trainer of TRL by its name."""
    if loop == "trainer" and "trl" in imported_names(script.tree).values():
        return "a trainer of TRL"
    return _IN_WORDS[loop]
