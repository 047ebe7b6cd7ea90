"""While it imports, transformers is given names instead of packages of which a plan may use nothing.

Of what importing a class takes torch._dynamo, torch.distributed.tensor with sympy, scipy.optimize and the reading of
models' files are a third. Only import statements of transformers' own modules are answered so, and what torch's meta
kernels import when they run; what they name is fetched when it is used (`names.Later`).
"""

import builtins
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpu_plan.planner.model.build.lean.attributes import come_when_asked_for
from gpu_plan.planner.model.build.lean.dynamo import NAME as DYNAMO
from gpu_plan.planner.model.build.lean.dynamo import compiled_later, marks_wait
from gpu_plan.planner.model.build.lean.names import Names
from gpu_plan.planner.model.build.lean.paused import is_open, opened
from gpu_plan.planner.model.build.lean.plain_sizes import asks_sizes, names_of
from gpu_plan.planner.model.build.lean.structure import FoldersRead
from gpu_plan.planner.model.build.lean.torchao import without_torchao

_SPARED = ("transformers", "peft")
"""Packages that are given names."""
_LATER = (
    "scipy.optimize",
    "torch._dynamo._trace_wrapped_higher_order_op",
    "torch.distributed._composable.fsdp",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "transformers.distributed.expert_parallel",
    "transformers.distributed.tensor_parallel",
)
"""Packages whose names come later, with all that is in them. The last two make placements when they are imported."""
_LARGE = (DYNAMO, "sympy", "torch.distributed.fsdp", "torch.distributed.tensor")
_ASK_DYNAMO = {
    DYNAMO: ("torch.compiler", "torch._compile"),
    f"{DYNAMO}.config": ("torch._subclasses.fake_tensor",),
}
"""torch's modules that import torch._dynamo to mark a function for it, or to read a setting."""

_ASKS_SYMPY = "torch._prims_common"
"""torch's module that asks of every number whether it is an expression of sympy's."""


@contextmanager
def lean_imports() -> Iterator[None]:
    """Within, this thread imports transformers, one of its models or peft without what no plan asks of it."""
    if is_open():
        yield
        return
    folders = FoldersRead()
    come_when_asked_for()

    def later(asks: Mapping[str, Any], name: str, level: int) -> Names | None:
        if is_open() and str(asks.get("__name__")).partition(".")[0] in _SPARED:
            module = importlib.util.resolve_name("." * level + name, asks["__package__"]) if level else name
            if _comes_later(module):
                return Names(module)
        return None

    def behind() -> None:
        if is_open():
            folders.begin()

    try:
        with opened(), without_torchao(), _answered(later, behind), compiled_later():
            yield
    finally:
        folders.end()


def large_ones() -> frozenset[str]:
    """What is imported of the packages that may come late. One that comes while a step is recorded keeps frames of it,
    and tensors with them: such a recording tells too late when they die."""
    return frozenset(name for name in _LARGE if name in sys.modules)


@contextmanager
def dynamo_away() -> Iterator[None]:
    """Within, what runs without being compiled does not import torch._dynamo to say so."""
    with _answered(lambda asks, name, level: None, lambda: None):
        yield


@contextmanager
def _answered(
    later: Callable[[Mapping[str, Any], str, int], Names | None], behind: Callable[[], None]
) -> Iterator[None]:
    """Within, `from` statements are asked of `later` (who asks, module, level) first; `behind` follows each import."""
    import torch

    real = builtins.__import__

    def found(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        asks = globals or {}
        if not fromlist and asks.get("__name__") in _ASK_DYNAMO.get(name, ()) and "_dynamo" in vars(torch):
            return torch  # where it stands in for the real one, or is it
        if name == "sympy" and not fromlist and asks.get("__name__") == _ASKS_SYMPY:
            return Names(name)
        names = None
        if fromlist:
            names = names_of(name) if asks_sizes(asks.get("__name__")) else later(asks, name, level)
        if names is not None:
            return names
        module = real(name, globals, locals, fromlist, level)
        behind()
        return module

    builtins.__import__ = found
    try:
        with marks_wait():
            yield
    finally:
        if builtins.__import__ is found:
            builtins.__import__ = real


def _comes_later(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in _LATER)
