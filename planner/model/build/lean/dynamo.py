"""torch._dynamo stays away until something compiles or looks into it; what code marked for it is then told to it.

Decorators of torch.compiler import it only to say that a function is not compiled, or is taken as it stands
(torch/compiler/__init__.py: disable, allow_in_graph; torch/_dynamo/decorators.py: assume_constant_result), and so do
torch's own functions that are never compiled, when they are first called (torch/_compile.py: _disable_dynamo). As long
as nothing of it is imported nothing is compiled, and a marked function is the function itself.
"""

import functools
import importlib
import importlib.abc
import importlib.util
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from gpu_plan.planner.model.build.lean.paused import paused

NAME = "torch._dynamo"
_KEPT = "__dynamo_disable"
"""Where torch/_compile.py: _disable_dynamo keeps the function that it calls."""
_marks: list[Callable[[Any], None]] = []
"""What is said to torch._dynamo once it is there."""
_waiting: weakref.WeakKeyDictionary[Callable[..., Any], tuple[list[Callable[..., Any]], dict[str, Any]]] = (
    weakref.WeakKeyDictionary()
)
"""Functions that call what is not to be compiled: what they call, and how torch._dynamo is told of it."""


class _Stand:
    """`torch._dynamo` while code that marks functions for it is imported; for anything else it is the real one."""

    @property
    def config(self) -> Any:
        return _Settings()

    def allow_in_graph(self, function: Any) -> Any:
        _marks.append(lambda dynamo: dynamo.allow_in_graph(function))
        return function

    def assume_constant_result(self, function: Any) -> Any:
        _marks.append(lambda dynamo: dynamo.assume_constant_result(function))
        return function

    def disable(
        self, fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True
    ) -> Any:
        if fn is None:
            return functools.partial(self.disable, recursive=recursive, reason=reason, wrapping=wrapping)
        if not wrapping:  # of torch's own functions, which keep what they are given (torch/_compile.py)
            _marks.append(lambda dynamo: setattr(fn, _KEPT, dynamo.disable(fn, recursive, wrapping=False)))
            return fn
        if isinstance(fn, type):
            return _real().disable(fn, recursive, reason=reason, wrapping=wrapping)
        return _disabled(fn, {"recursive": recursive, "reason": reason})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real(), name)


def _disabled(function: Callable[..., Any], words: dict[str, Any]) -> Callable[..., Any]:
    runs = [function]

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return runs[0](*args, **kwargs)

    _waiting[called] = (runs, words)
    return called


class _Settings:
    """`torch._dynamo.config`: checkpointing reads one value of it, for the case that a step is traced by fx
    (torch/utils/checkpoint.py: _checkpoint_without_reentrant_generator), fake tensors three, on which no result depends
    (torch/_subclasses/fake_tensor.py: FakeTensorMode); all as torch/_dynamo/config.py has them."""

    error_on_nested_fx_trace = True
    fake_tensor_cache_enabled = True
    fake_tensor_cache_crosscheck_enabled = False
    _custom_ops_profile = None

    def __getattr__(self, name: str) -> Any:
        return getattr(_real().config, name)


@contextmanager
def compiled_later() -> Iterator[None]:
    """Within, `torch.compile` as a decorator asks torch._dynamo at the function's first call, not where it is defined:
    bitsandbytes compiles kernels of its own."""
    import torch

    real = torch.compile

    def compiles(model: Any = None, **words: Any) -> Any:
        if model is None:
            return functools.partial(compiles, **words)
        if NAME in sys.modules or isinstance(model, (type, torch.nn.Module)):
            return real(model, **words)
        runs: list[Any] = []

        @functools.wraps(model)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not runs:
                runs.append(real(model, **words))
            return runs[0](*args, **kwargs)

        return called

    torch.compile = compiles
    try:
        yield
    finally:
        torch.compile = real


def _real() -> ModuleType:
    _leave()
    with paused():
        return importlib.import_module(NAME)


def _leave() -> None:
    torch = sys.modules["torch"]
    if _stands(torch):
        del torch._dynamo


def is_away() -> bool:
    """Whether it is kept away just now."""
    return _stands(sys.modules["torch"])


def _stands(torch: ModuleType) -> bool:
    return isinstance(vars(torch).get("_dynamo"), _Stand)


class _Told(importlib.abc.Loader):
    """Loads torch._dynamo as ever, then says what was marked for it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for mark in _marks:
            mark(module)
        _marks.clear()
        for runs, words in _waiting.values():
            runs[0] = module.disable(runs[0], **words)
        _waiting.clear()


class _Awaits(importlib.abc.MetaPathFinder):
    """Sees torch._dynamo come."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Told(spec.loader)
        return spec


@contextmanager
def marks_wait() -> Iterator[None]:
    """Within, marks for torch._dynamo wait until it is imported; nothing changes where it is."""
    import torch

    if NAME in sys.modules or _stands(torch):
        yield
        return
    if not any(isinstance(finder, _Awaits) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Awaits())
    torch._dynamo = _Stand()
    try:
        yield
    finally:
        _leave()
