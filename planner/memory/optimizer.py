"""What an optimizer step allocates on one rank, from that rank's own list of tensors.

Read in torch.optim 2.13 and checked against its real runs in the tests: which state each algorithm keeps, and
which lists its foreach, fused and for-loop implementations build on the way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.dtypes import element_bits
from planner.memory.stream import Handle, StreamBuilder
from planner.trace.events import Category
from planner.units import ceil_div
from planner.workload import Optimizer

_NORM_CHUNK = 65_536
_SCALAR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTensor:
    """A parameter, or its shard, as the optimizer sees it."""

    name: str
    numel: int
    dtype: str

    @property
    def nbytes(self) -> int:
        return ceil_div(self.numel * element_bits(self.dtype), 8)


@dataclass(frozen=True, slots=True)
class _Rule:
    state_copies: int
    """Tensors of the parameter's size kept per parameter."""
    group_copies: int
    """Tensors of the parameter's size that the step makes for the whole group at once (foreach)."""
    single_copies: int
    """The same for one parameter at a time (for-loop)."""
    device_step: bool = False
    """Whether the step counter is a device tensor."""


# torch/optim/adamw.py, adam.py: _multi_tensor_adam keeps exp_avg and exp_avg_sq and builds exp_avg_sq_sqrt;
# _single_tensor_adam builds the square root, its quotient and addcdiv's operand; _fused_adam nothing.
# torch/optim/sgd.py: momentum 0 has no state, both paths work in place.
_RULES = {
    Optimizer.ADAMW: _Rule(2, 1, 0),
    Optimizer.ADAMW_FUSED: _Rule(2, 0, 0, device_step=True),
    Optimizer.ADAMW_FORLOOP: _Rule(2, 0, 2),
    Optimizer.SGD: _Rule(0, 0, 0),
}


def state_bytes(optimizer: Optimizer, tensors: Sequence[LocalTensor]) -> int:
    """Requested bytes of the optimizer's state."""
    return _RULES[optimizer].state_copies * sum(tensor.nbytes for tensor in tensors)


def place_state(builder: StreamBuilder, optimizer: Optimizer, tensors: Sequence[LocalTensor]) -> list[Handle]:
    """State appears in the first step, in the parameters' dtype; it stays."""
    rule = _RULES[optimizer]
    handles = []
    for tensor in tensors:
        if tensor.numel == 0:
            continue
        if rule.device_step:
            handles.append(builder.alloc(builder.at_step(0), _SCALAR, Category.OPTIMIZER_STATE, "step", tensor.name))
        for _ in range(rule.state_copies):
            handles.append(
                builder.alloc(builder.at_step(0), tensor.nbytes, Category.OPTIMIZER_STATE, str(optimizer), tensor.name)
            )
    return handles


def place_step(builder: StreamBuilder, iteration: int, optimizer: Optimizer, tensors: Sequence[LocalTensor]) -> None:
    """Temporaries of one step: whole lists for foreach, one tensor at a time for the loop."""
    rule = _RULES[optimizer]
    live = [tensor for tensor in tensors if tensor.numel]
    for _ in range(rule.group_copies):
        handles = [
            builder.alloc(
                builder.at_step(iteration), tensor.nbytes, Category.TEMPORARY, f"{optimizer} foreach", tensor.name
            )
            for tensor in live
        ]
        for handle in handles:
            builder.free(builder.at_step(iteration), handle)
    if rule.single_copies and live:
        _place_loop(builder, iteration, str(optimizer), rule.single_copies, live)


def _place_loop(
    builder: StreamBuilder, iteration: int, label: str, copies: int, tensors: Sequence[LocalTensor]
) -> None:
    """One tensor after another; the last copy of each (the denominator) lives until the next one's replaces it."""
    before: Handle | None = None
    for tensor in tensors:
        handles = [
            builder.alloc(builder.at_step(iteration), tensor.nbytes, Category.TEMPORARY, label, tensor.name)
            for _ in range(copies)
        ]
        if before is not None:
            builder.free(builder.at_step(iteration), before)
        for handle in handles[:-1]:
            builder.free(builder.at_step(iteration), handle)
        before = handles[-1]
    if before is not None:
        builder.free(builder.at_step(iteration), before)


def place_clipping(builder: StreamBuilder, iteration: int, tensors: Sequence[LocalTensor]) -> None:
    """Scratch of clip_grad_norm_: one norm per tensor, their stack, and the partial sums of the foreach kernel.

    torch/nn/utils/clip_grad.py; pytorch aten/src/ATen/native/cuda/ForeachReduceOp.cu: foreach_tensor_norm_cuda.
    """
    live = [tensor for tensor in tensors if tensor.numel]
    if not live:
        return
    chunks = max(ceil_div(tensor.numel, _NORM_CHUNK) for tensor in live)
    partial = builder.alloc(
        builder.at_step(iteration), _SCALAR * len(live) * chunks, Category.TEMPORARY, "clip_grad_norm_ partial sums"
    )
    norms = builder.alloc(
        builder.at_step(iteration), _SCALAR * len(live), Category.TEMPORARY, "clip_grad_norm_ norms", blocks=len(live)
    )
    stacked = builder.alloc(
        builder.at_step(iteration), _SCALAR * len(live), Category.TEMPORARY, "clip_grad_norm_ stacked norms"
    )
    for handle in (partial, norms, stacked):
        builder.free(builder.at_step(iteration), handle)
