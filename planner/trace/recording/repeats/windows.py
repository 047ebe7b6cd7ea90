"""Loops over the pieces of a batch, in the models' own way to write them: `torch.split` by lengths that a tensor says,
something for each piece, `torch.cat` of what came of them.

transformers models/qwen2_5_vl/modeling_qwen2_5_vl.py: Qwen2_5_VLVisionAttention.forward, and all that were written
after it.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from gpu_plan.planner.trace.recording.fit import NO_LOOPS, Call, Loops
from gpu_plan.planner.trace.recording.recorder import RawOperator


@dataclass(slots=True, kw_only=True)
class Windows:
    """Of one step of `samples` samples."""

    samples: int
    keep: int = 0
    """For how many samples the known loops are run; 0: for all."""
    known: Loops = NO_LOOPS
    """What another recording of the same step found."""
    _found: set[Call] = field(default_factory=set)
    _modules: set[int] = field(default_factory=set)
    _read: list[Any] = field(default_factory=list)
    """Lists that were read from tensors: lengths of pieces are, sizes of a model are not."""
    _open: list[Call] = field(default_factory=list)
    _pieces: int = 0
    """How many pieces those that are open were split into."""
    _begun: int = 0
    """How many operators had run then."""
    _kept: int = 0
    """Pieces that are left of them."""

    @property
    def loops(self) -> Loops:
        """Those with whose pieces something was done, piece by piece."""
        return Loops(calls=frozenset(self._found), modules=frozenset(self._modules)) if self._found else NO_LOOPS

    @contextlib.contextmanager
    def watched(self, operators: Sequence[RawOperator]) -> Iterator[None]:
        """Within, loops are found, or cut short; `operators` are those that were recorded so far."""
        split, cat, tolist = torch.split, torch.cat, torch.Tensor.tolist

        def lists(tensor: torch.Tensor) -> Any:
            found = tolist(tensor)
            self._read.append(found)
            return found

        def splits(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
            sizes = split_size_or_sections
            if not any(sizes is one for one in self._read):
                return split(tensor, sizes, dim)
            caller = sys._getframe(1)
            call = (caller.f_code.co_filename, caller.f_lineno)
            if not self._repeat(sizes) or (self.keep and call not in self.known.calls):
                return split(tensor, sizes, dim)
            if self._pieces != len(sizes) or len(operators) != self._begun:
                self._open = []
            self._open.append(call)
            self._pieces, self._begun = len(sizes), len(operators)
            if not self.keep:
                return split(tensor, sizes, dim)
            self._kept = len(sizes) // self.samples * self.keep
            return _pieces(tensor, list(sizes), self._kept, dim)

        def joins(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else kwargs.get("tensors")
            if not self._open or not isinstance(given, (list, tuple)):
                return cat(*args, **kwargs)
            if self.keep and len(given) == self._kept:
                given = [*given, *(one.detach() for one in _again(given, self._pieces))]
                self._open = []
                return cat(given, *args[1:], **{name: value for name, value in kwargs.items() if name != "tensors"})
            if not self.keep and len(given) == self._pieces:
                if len(operators) > self._begun:
                    self._found.update(self._open)
                    self._modules.update(one.module for one in operators[self._begun :])
                self._open = []
            return cat(*args, **kwargs)

        with contextlib.ExitStack() as stack:
            for home, name, ours in ((torch, "split", splits), (torch, "cat", joins), (torch.Tensor, "tolist", lists)):
                stack.enter_context(mock.patch.object(home, name, ours))
            yield

    def _repeat(self, sizes: Any) -> bool:
        """Whether each sample has the same pieces."""
        each, rest = divmod(len(sizes), self.samples)
        return self.samples > 1 and each > 0 and not rest and list(sizes[:each]) * self.samples == list(sizes)


def _again(pieces: Any, count: int) -> list[Any]:
    """What stands for those that are left out: the first ones, in turns."""
    return [pieces[place % len(pieces)] for place in range(len(pieces), count)]


def _pieces(tensor: torch.Tensor, sizes: list[int], kept: int, dim: int) -> tuple[torch.Tensor, ...]:
    pieces: tuple[torch.Tensor, ...] = _Pieces.apply(tensor, sizes, kept, dim)
    node = pieces[0].grad_fn
    if node is not None:
        # torch/csrc/autograd/engine.cpp: call_function keeps a node's gradients for its hooks, and lets them go the
        # first one first, as those of a node of its own; the words of a call to Python go the last one first.
        node.register_hook(lambda *_: None)
    return pieces


class _Pieces(torch.autograd.Function):
    """The first pieces of a tensor; in backward the gradient of all of it, as if the others had one each."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, sizes: list[int], kept: int, dim: int) -> tuple[torch.Tensor, ...]:
        ctx.count, ctx.dim = len(sizes), dim
        ctx.set_materialize_grads(False)
        return tuple(torch.ops.aten.split_with_sizes.default(tensor, sizes, dim)[:kept])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        # torch/csrc/autograd/FunctionsManual.cpp: split_with_sizes_backward
        return torch.ops.aten.cat.default([*gradients, *_again(gradients, ctx.count)], ctx.dim), None, None, None
