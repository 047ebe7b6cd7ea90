"""Puts compiled regions in the place of modules' forward for the time of a recorded step."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.compile.capture import Compiled, Compiler, compile_region
from gpu_plan.planner.trace.compile.checkpoints import tagged_checkpoints
from gpu_plan.planner.trace.folding.blocks import signature_of

Within = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a recorded step has around the model's code, as far as a capture needs it or must be rid of it."""

    model_code: Within
    """Around the module's own Python while it is captured: the device's functions, and autocast without a cache."""
    unrecorded: Within
    """Around the capture: nothing of it is part of the step."""
    state: Callable[[], str] = str
    """What besides the inputs decides how the module computes: autocast."""


@dataclass(slots=True)
class _Captured:
    compiled: Compiled
    outputs: TreeSpec
    constants: list[Any]
    """The outputs' leaves; None where a tensor comes."""


@dataclass(slots=True, kw_only=True)
class Regions:
    """The compiled regions of one model; equal blocks share a graph, as guards let them."""

    compiler: Compiler
    _captured: dict[Any, _Captured] = field(default_factory=dict)

    @contextlib.contextmanager
    def installed(self, model: nn.Module, names: Sequence[str], around: Surroundings) -> Iterator[None]:
        """Within, the named modules run compiled."""
        modules = [model.get_submodule(name) for name in names]
        try:
            for name, module in zip(names, modules, strict=True):
                module.forward = _Call(self, name, module, module.forward, around)
            yield
        finally:
            for module in modules:
                if "forward" in module.__dict__ and isinstance(module.__dict__["forward"], _Call):
                    original = module.__dict__.pop("forward").forward
                    if getattr(original, "__func__", None) is not type(module).forward:
                        module.forward = original

    def captured(self, call: "_Call", key: Any, inputs: "_Inputs") -> _Captured:
        """The graph of a call, made at the first of its kind."""
        found = self._captured.get(key)
        if found is None:
            found = self._captured[key] = _capture(call, inputs, self.compiler)
        return found


@dataclass(frozen=True, slots=True)
class _Inputs:
    leaves: list[Any]
    spec: TreeSpec

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def filled(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """(args, kwargs) with other tensors."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return args, kwargs

    def key(self) -> Any:
        described = tuple(_describe(leaf) for leaf in self.leaves)
        return described, str(self.spec), torch.is_grad_enabled()


def _describe(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype, leaf.requires_grad
    return repr(leaf) if leaf is None or isinstance(leaf, (bool, int, float, str, torch.dtype)) else id(leaf)


class _Call:
    """A module's forward, compiled at its first call with inputs of a kind."""

    def __init__(self, regions: Regions, name: str, module: nn.Module, forward: Any, around: Surroundings) -> None:
        self.name, self.module, self.forward, self.around = name, module, forward, around
        self._regions = regions
        self._signature = signature_of(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs = _Inputs(*tree_flatten((args, kwargs)))
        key = (self._signature, self.module.training, self.around.state(), inputs.key())
        found = self._regions.captured(self, key, inputs)
        states = [value for _, value in self.module.named_parameters(remove_duplicate=False)]
        states += [value for _, value in self.module.named_buffers(remove_duplicate=False)]
        # Autocast and the device's functions are in the graph already (runtime_wrappers.py: disable_amp).
        with torch._C.DisableTorchFunction():
            outputs = iter(found.compiled([*states, *inputs.tensors]))
        leaves = [next(outputs) if leaf is None else leaf.value for leaf in found.constants]
        return tree_unflatten(leaves, found.outputs)


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any


class _Region(nn.Module):
    """A module as AOTAutograd takes it: flat tensors in, flat tensors out."""

    def __init__(self, call: _Call, inputs: _Inputs) -> None:
        super().__init__()
        self.inner = call.module
        self._call, self._inputs = call, inputs
        self.outputs: TreeSpec | None = None
        self.constants: list[Any] = []

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self._inputs.filled(tensors)
        with self._call.around.model_code():
            result = self._call.forward(*args, **kwargs)
        leaves, self.outputs = tree_flatten(result)
        self.constants = [None if isinstance(leaf, torch.Tensor) else _Constant(leaf) for leaf in leaves]
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def _capture(call: _Call, inputs: _Inputs, compiler: Compiler) -> _Captured:
    """InputError, one line, where the region is not one graph."""
    with _alone(), call.around.unrecorded(), tagged_checkpoints():
        # Whatever a graph keeps must not be a tensor of the step.
        bare = _Inputs([_like(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in inputs.leaves], inputs.spec)
        region = _Region(call, bare)
        try:
            compiled = compile_region(region, bare.tensors, compiler)
        except InputError:
            raise
        except Exception as problem:
            raise InputError(_reason(call, problem)) from problem
    assert region.outputs is not None
    return _Captured(compiled, region.outputs, region.constants)


def _reason(call: _Call, problem: Exception) -> str:
    first = (str(problem).strip().splitlines() or [""])[0]
    where = call.name or type(call.module).__name__
    return f"--compile: {where} is not one graph: {type(problem).__name__}: {first[:160]}"


def _like(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return made.requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Within, no mode of the caller's is active."""
    modes = [_pop_mode() for _ in _get_current_function_mode_stack()]
    try:
        with _disable_current_modes():
            yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)
