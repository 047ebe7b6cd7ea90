"""Runs a model with the blocks that folding leaves out passed through."""

import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.trace.folding.blocks import repeated_blocks, signature_of
from gpu_plan.planner.trace.folding.units import CannotFoldError, Fold, find_folds


def folds_of(model: nn.Module, *, whole_ends: bool = False) -> list[Fold]:
    """Runs of equal blocks of a model that are traced a few times and copied; `whole_ends` as in `find_folds`."""
    return [
        fold
        for run in repeated_blocks(model)
        if isinstance(run.module, nn.ModuleList)
        for fold in find_folds(run.name, run.signatures, whole_ends=whole_ends)
    ]


def folds_of_part(part: nn.Module, whole: nn.Module, *, whole_ends: bool = False) -> list[Fold]:
    """The same of what a rank has of a model: lists are found in the `whole`, blocks that it lacks stay as they are."""
    found = []
    for run in repeated_blocks(whole):
        if not isinstance(run.module, nn.ModuleList):
            continue
        blocks = list(part.get_submodule(run.name).children())
        own = [any(True for _ in block.parameters()) for block in blocks]
        signatures = [
            signature_of(block) if mine else index for index, (block, mine) in enumerate(zip(blocks, own, strict=True))
        ]
        found += find_folds(run.name, signatures, whole_ends=whole_ends)
    return found


class PassThrough(nn.Module):
    """Stands where a block is left out: hands its input on, in the form of the block's output."""

    def __init__(self, block: nn.Module, guard: "FoldGuard") -> None:
        super().__init__()
        object.__setattr__(self, "_block", block)
        object.__setattr__(self, "_guard", guard)
        # transformers collects hidden states in hooks on the blocks and counts them.
        self._forward_hooks = block._forward_hooks
        self._forward_hooks_with_kwargs = block._forward_hooks_with_kwargs
        self._forward_hooks_always_called = block._forward_hooks_always_called

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_block"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._guard.check()
        return self._guard.output_like(args, kwargs)


class FoldGuard:
    """Learns what a block returns, and refuses folds around which the model computes something."""

    def __init__(self) -> None:
        self.operators_seen: Any = lambda: 0
        self._shape: list[Any] | None = None
        self._is_tuple = False
        self._count: int | None = None

    def learn(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Forward hook of executed blocks: which output is the block's own, which are handed through."""
        self._is_tuple = isinstance(output, tuple)
        items = list(output) if self._is_tuple else [output]
        inputs: dict[int, tuple[str, Any]] = {
            id(value): ("arg", index) for index, value in enumerate(args) if value is not None
        }
        inputs |= {id(value): ("kwarg", key) for key, value in kwargs.items() if value is not None}
        shape: list[Any] = []
        has_hidden = False
        for item in items:
            if not isinstance(item, torch.Tensor):
                shape.append(("value", item) if item is None or isinstance(item, (bool, int)) else None)
            elif id(item) in inputs:
                shape.append(inputs[id(item)])
            elif has_hidden:
                # Attention weights and the like: a caller that holds them holds them until the next block returns.
                shape.append(("held", weakref.ref(item)))
            else:
                shape.append(("hidden", None))
                has_hidden = True
        self._shape = shape if has_hidden and None not in shape else None
        self._count = self.operators_seen()

    def check(self) -> None:
        if self._shape is None:
            raise CannotFoldError("blocks return more than their hidden state")
        if self._count != self.operators_seen():
            raise CannotFoldError("the model computes between its blocks")

    def output_like(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        hidden = args[0] if args else kwargs.get("hidden_states", kwargs.get("hidden_state"))
        if not isinstance(hidden, torch.Tensor):
            raise CannotFoldError("the hidden state is not the first argument of a block")
        items = []
        for source, key in self._shape or ():
            if source == "hidden":
                items.append(hidden)
            elif source == "arg":
                items.append(args[key])
            elif source == "kwarg":
                items.append(kwargs[key])
            elif source == "held":
                if key() is None:
                    raise CannotFoldError("the model drops a part of what its blocks return")
                items.append(key())
            else:
                items.append(key)
        return tuple(items) if self._is_tuple else items[0]


def _install_capturing_hooks(model: nn.Module) -> None:
    """transformers utils/output_capturing.py installs its hooks on first use, once: blocks left out must get theirs."""
    capturing = sys.modules.get("transformers.utils.output_capturing")
    modeling = sys.modules.get("transformers.modeling_utils")
    if capturing is None or modeling is None:
        return
    for module in model.modules():
        if isinstance(module, modeling.PreTrainedModel):
            capturing.maybe_install_capturing_hooks(module)


@contextmanager
def folded(model: nn.Module, folds: Sequence[Fold], operators_seen: Any) -> Iterator[None]:
    """Leaves blocks out for the time of one step; `operators_seen()` counts recorded operators."""
    put_back: list[tuple[nn.ModuleList, int, nn.Module]] = []
    handles = []
    if folds:
        _install_capturing_hooks(model)
    try:
        for fold in folds:
            blocks = model.get_submodule(fold.list_name)
            assert isinstance(blocks, nn.ModuleList)
            guard = FoldGuard()
            guard.operators_seen = operators_seen
            last_before = fold.blocks(1)[-1]
            handles.append(blocks[last_before].register_forward_hook(guard.learn, with_kwargs=True))
            for index in fold.skipped_blocks():
                put_back.append((blocks, index, blocks[index]))
                blocks[index] = PassThrough(blocks[index], guard)
        yield
    finally:
        for blocks, index, block in put_back:
            blocks[index] = block
        for handle in handles:
            handle.remove()
