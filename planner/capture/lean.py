"""Whether a script trains without transformers, read from its text and its neighbours' (I/O).

Importing transformers' model code takes twice as long as importing torch. A script that needs it imports it before any
answer stands in a GPU's place; one that cannot need it is spared.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

_LEAN = frozenset({
    "accelerate", "einops", "matplotlib", "numpy", "psutil", "requests", "tiktoken", "torch", "torchvision", "tqdm",
    "wandb", "yaml",
})  # fmt: skip
"""Packages that do not import transformers by themselves."""
_NOT_LEAN = "torch.distributed."
"""Sharding and its tensors: what transformers imports of torch, a script of its own FSDP wants there beforehand too."""
_MOST = 100
"""Neighbours that are read; a script with more is taken to need transformers."""


def does_without_transformers(script: Path) -> bool:
    """Whether all that `script` and its neighbours name to import is known not to bring transformers.

    False in doubt: a package that is not known, a module that is not found, a text that cannot be read.
    """
    waiting, seen = [script], {script}
    while waiting:
        path = waiting.pop()
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return False
        for names in _imported(tree):
            if _is_lean(names[0]):
                continue
            found = [file for name in names for file in _beside(name, script.parent)]
            if not found or len(seen) > _MOST:
                return False
            waiting += [file for file in found if file not in seen]
            seen.update(found)
    return True


def _imported(tree: ast.Module) -> Iterator[list[str]]:
    """Of each import: the module, and what may be modules in it. A relative one has a module that nobody finds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ([alias.name] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield [module, *(f"{module}.{alias.name}" for alias in node.names)]


def _is_lean(name: str) -> bool:
    root = name.partition(".")[0]
    return (root in sys.stdlib_module_names or root in _LEAN) and not name.startswith(_NOT_LEAN)


def _beside(name: str, folder: Path) -> list[Path]:
    """Files of a module in the script's own folder, with those of the packages that it lies in."""
    parts = name.split(".")
    if not all(parts):
        return []
    packages = [folder.joinpath(*parts[:end], "__init__.py") for end in range(1, len(parts) + 1)]
    return [path for path in (*packages, folder.joinpath(*parts).with_suffix(".py")) if path.is_file()]
