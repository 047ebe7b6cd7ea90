"""Which model types the installed transformers has classes for, without importing it."""

import importlib.util
import re
from functools import cache
from pathlib import Path

from gpu_plan.planner.model.config_reader import shown

_PAIR = re.compile(r'"([\w.-]+)"\s*[,:]\s*"\w+Config"')


@cache
def native_model_types() -> frozenset[str]:
    """Every `model_type` that transformers maps to a config class; empty if transformers cannot be found.

    Read from the text of transformers' models/auto/auto_mappings.py and configuration_auto.py
    (CONFIG_MAPPING_NAMES): importing transformers takes most of a second, this a few milliseconds.
    """
    spec = importlib.util.find_spec("transformers")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        return frozenset()
    auto = Path(next(iter(folders))) / "models" / "auto"
    found: set[str] = set()
    for name in ("auto_mappings.py", "configuration_auto.py"):
        path = auto / name
        if path.is_file():
            pairs = _PAIR.findall(path.read_text(encoding="utf-8"))
            found.update(name for name in pairs if not name.isupper())
    return frozenset(found)


def not_native_message(model: str, model_type: str) -> str:
    """The one line for a model whose class stands in its own repository instead of transformers."""
    return (
        f"{model} has model_type {shown(model_type)}, for which the installed transformers has no class: it"
        " would need code from the model's own repository, which runs only with --trust-remote-code"
    )
