"""What Megatron-core runs again in backward: a part whose inputs are kept, or one whose output is let go of as well.

megatron/core/tensor_parallel/random.py (0.16.1): CheckpointFunction, CheckpointWithoutOutput. Custom functions have
untyped contexts, hence Any.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch


class Recomputed(torch.autograd.Function):
    """CheckpointFunction: the inputs of a chunk are kept, and it is run again."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], *given: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            out: torch.Tensor = run(*given)
        ctx.run = run
        ctx.save_for_backward(*given)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        again = tuple(one.detach().requires_grad_(one.requires_grad) for one in ctx.saved_tensors)
        with torch.enable_grad():
            out = ctx.run(*again)
        torch.autograd.backward(out, grads[0])
        return (None, *(one.grad for one in again))


class _WithoutOutput(torch.autograd.Function):
    """CheckpointWithoutOutputFunction."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], owner: "WithoutOutput", *given: torch.Tensor) -> Any:
        with torch.no_grad():
            outputs = run(*given)
        ctx.save_for_backward(*given)
        owner.ctx = ctx
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        inputs, outputs = ctx.inputs, ctx.outputs
        torch.autograd.backward(outputs, grads)
        ctx.outputs = ctx.inputs = None
        return (None, None, *(one.grad for one in inputs))


class WithoutOutput:
    """CheckpointWithoutOutput of one part: what takes its output keeps nothing of it, and finds it again in backward.

    There the storages of the output are emptied and filled again; here what is kept of them is a place in what comes
    back, which is a copy of what is run again, as there.
    """

    def __init__(self) -> None:
        self.ctx: Any = None
        self._run: Any = None
        self._places: dict[int, int] = {}
        self._kept: list[int] = []
        self._back: dict[int, torch.Tensor] = {}

    def run(self, run: Callable[..., Any], *given: torch.Tensor) -> Any:
        """The part's output, to be used within `kept_elsewhere` alone."""
        self._run = run
        outputs = _WithoutOutput.apply(run, self, *given)
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        self._places = {one.untyped_storage()._cdata: number for number, one in enumerate(several)}
        self._kept = [0] * len(several)
        return outputs

    @contextlib.contextmanager
    def kept_elsewhere(self) -> Iterator[None]:
        """Within, nothing that is saved for backward holds the output."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield

    def again_before(self, hook: torch.Tensor) -> None:
        """`discard_output_and_register_recompute`: run again as soon as the gradient of `hook` stands."""
        if hook.requires_grad:
            hook.register_hook(self._recompute)

    def _pack(self, tensor: torch.Tensor) -> Any:
        place = self._places.get(tensor.untyped_storage()._cdata)
        if place is None:
            return tensor
        self._kept[place] += 1
        return place, tensor.size(), tensor.stride(), tensor.storage_offset()

    def _unpack(self, packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        place, size, stride, offset = packed
        found = self._back[place].as_strided(size, stride, offset)
        self._kept[place] -= 1
        if not self._kept[place]:
            del self._back[place]
        return found

    def _recompute(self, _: torch.Tensor) -> None:
        ctx, self.ctx = self.ctx, None
        inputs = tuple(one.detach().requires_grad_(one.requires_grad) for one in ctx.saved_tensors)
        with torch.enable_grad():
            outputs = self._run(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        with torch.no_grad():
            for place, out in enumerate(outputs):
                back = torch.empty_like(out)
                back.copy_(out)
                if self._kept[place]:
                    self._back[place] = back
                del back
        self._run = None
        ctx.outputs, ctx.inputs = outputs, inputs
