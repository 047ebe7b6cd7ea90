"""Submodules that importing transformers made attributes of their packages, there when they are asked for."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

_SUBMODULES = (
    "torch.distributed._composable",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.fx.experimental.symbolic_shapes",
)
"""What others write out (`torch.distributed.tensor.DTensor`) and rely on somebody to have imported."""


def come_when_asked_for() -> None:
    """From now on; what is imported is found as ever."""
    for name in {submodule.rpartition(".")[0] for submodule in _SUBMODULES}:
        package = importlib.import_module(name)
        if "__getattr__" not in vars(package):
            package.__getattr__ = _importer(package)  # type: ignore[method-assign]


def _importer(package: ModuleType) -> Callable[[str], Any]:
    def attribute(name: str) -> Any:
        if f"{package.__name__}.{name}" in _SUBMODULES:
            return importlib.import_module(f"{package.__name__}.{name}")
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")

    return attribute
