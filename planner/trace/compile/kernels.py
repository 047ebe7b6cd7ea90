"""Generated kernels as operators that compute nothing: what a recorder sees of a fused kernel's launch."""

import re
from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("gpu_plan", "FRAGMENT")
_known: dict[str, Any] = {}
_WRITTEN = ("out_ptr", "in_out_ptr", "ws_ptr")
_NUMBER = re.compile(r"_\d+$")


class Kernel:
    """Stands where a compiled Triton or C++ kernel does; a launch says which storages it reads and writes."""

    def __init__(self, name: str, writes: Callable[[int], bool]) -> None:
        self._operator = _operator(_NUMBER.sub("", name))
        self._writes = writes

    def run(self, *args: Any, **launch: Any) -> None:
        """A launch; of the arguments only tensors count."""
        tensors = [(index, value) for index, value in enumerate(args) if isinstance(value, torch.Tensor)]
        self._operator(
            [value for index, value in tensors if not self._writes(index)],
            [value for index, value in tensors if self._writes(index)],
        )

    __call__ = run


def triton_kernel(name: str, source: str, device: str = "cuda") -> Kernel:
    """torch/_inductor/async_compile.py: AsyncCompile.triton; arguments tell by their names what they are."""
    found = re.search(rf"def {re.escape(name)}\((.*?)\):", source, re.DOTALL)
    names = [part.split(":")[0].strip() for part in found[1].split(",")] if found is not None else []
    written = {
        index for index, argument in enumerate(names) if argument.startswith(("out_ptr", "in_out_ptr", "ws_ptr"))
    }
    return Kernel(name, written.__contains__)


def cpp_kernel(argument_types: list[str], source: str) -> Kernel:
    """torch/_inductor/async_compile.py: AsyncCompile.cpp_pybinding; what is not const is written."""
    written = {index for index, kind in enumerate(argument_types) if "*" in kind and not kind.startswith("const")}
    found = re.search(r"\b(cpp_\w+)\s*\(", source)
    return Kernel(found[1] if found is not None else "cpp_fused", written.__contains__)


def _operator(name: str) -> Any:
    """`gpu_plan::NAME(reads, writes)`, which returns nothing and does nothing on any device."""
    name = re.sub(r"\W", "_", name)[:120]
    if name not in _known:
        _LIBRARY.define(f"{name}(Tensor[] reads, Tensor(a!)[] writes) -> ()")
        _LIBRARY.impl(name, _nothing, "CompositeExplicitAutograd")
        _known[name] = getattr(torch.ops.gpu_plan, name).default
    return _known[name]


def _nothing(reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
    return None
