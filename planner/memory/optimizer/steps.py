"""What an optimizer keeps and what its step allocates on one rank, from that rank's own list of tensors.

The rules were read in the optimizers' sources, named in their modules, and are held against real runs in the tests.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from gpu_plan.planner.memory.optimizer.adafactor import adafactor_state, adafactor_step
from gpu_plan.planner.memory.optimizer.adam import (
    adam_state,
    foreach_adam_step,
    fused_adam_state,
    in_place_step,
    loop_adam_step,
    momentum_state,
    no_state,
)
from gpu_plan.planner.memory.optimizer.clipping import place_clipping
from gpu_plan.planner.memory.optimizer.eight_bit import (
    MAP_BYTES,
    adam_8bit_state,
    is_8_bit,
    lion_8bit_state,
    lion_state,
)
from gpu_plan.planner.memory.optimizer.local_tensor import LocalTensor, Role
from gpu_plan.planner.memory.optimizer.muon import muon_state, muon_step
from gpu_plan.planner.memory.optimizer.scratch import Scratch
from gpu_plan.planner.memory.optimizer.state import Kept
from gpu_plan.planner.memory.stream import Handle, StreamBuilder
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.workload.training import Optimizer

_StateRule = Callable[[LocalTensor], Iterator[Kept]]
_StepRule = Callable[[Scratch, Sequence[LocalTensor]], None]

_STATE: dict[Optimizer, _StateRule] = {
    Optimizer.ADAMW: adam_state,
    Optimizer.ADAMW_FUSED: fused_adam_state,
    Optimizer.ADAMW_FORLOOP: adam_state,
    Optimizer.SGD: no_state,
    Optimizer.SGD_MOMENTUM: momentum_state,
    Optimizer.ADAFACTOR: adafactor_state,
    Optimizer.MUON: muon_state,
    Optimizer.LION: lion_state,
}

_STEP: dict[Optimizer, _StepRule] = {
    Optimizer.ADAMW: foreach_adam_step,
    Optimizer.ADAMW_FORLOOP: loop_adam_step,
    Optimizer.ADAFACTOR: adafactor_step,
    Optimizer.MUON: muon_step,
}
"""Optimizers that are not named here work in place."""

_TABLES: dict[Optimizer, tuple[str, ...]] = {
    Optimizer.ADAMW_8BIT: ("qmap1", "qmap2"),
    Optimizer.PAGED_ADAMW_8BIT: ("qmap1", "qmap2"),
    Optimizer.LION_8BIT: ("qmap1",),
}
"""bitsandbytes/optim/optimizer.py: `init_state` moves a table for each moment to the device."""

BITSANDBYTES = frozenset({*_TABLES, Optimizer.LION})
"""Optimizers whose kernels know plain CUDA tensors only."""
SHAPED = frozenset({Optimizer.ADAFACTOR, Optimizer.MUON})
"""Optimizers that treat a matrix otherwise than a vector of as many elements."""


def _state_rule(optimizer: Optimizer, full_embeddings: bool) -> _StateRule:
    if optimizer is Optimizer.LION_8BIT:
        return partial(lion_8bit_state, full_embeddings=full_embeddings)
    if optimizer in _TABLES:
        paged = optimizer is Optimizer.PAGED_ADAMW_8BIT
        return partial(adam_8bit_state, paged=paged, full_embeddings=full_embeddings)
    return _STATE[optimizer]


def _kept(optimizer: Optimizer, tensors: Sequence[LocalTensor], full_embeddings: bool) -> Iterator[Kept]:
    rule = _state_rule(optimizer, full_embeddings)
    return chain.from_iterable(rule(tensor) for tensor in tensors if tensor.numel)


def state_bytes(optimizer: Optimizer, tensors: Sequence[LocalTensor], *, full_embeddings: bool = False) -> int:
    """Requested bytes of the optimizer's state, wherever it lies; tables shared by all parameters are left out."""
    return sum(kept.nbytes for kept in _kept(optimizer, tensors, full_embeddings))


def managed_bytes(optimizer: Optimizer, tensors: Sequence[LocalTensor], *, full_embeddings: bool = False) -> int:
    """Bytes of state in CUDA managed memory, which no counter of torch's allocator sees."""
    return sum(kept.nbytes for kept in _kept(optimizer, tensors, full_embeddings) if kept.managed)


def place_state(
    builder: StreamBuilder,
    optimizer: Optimizer,
    tensors: Sequence[LocalTensor],
    *,
    full_embeddings: bool = False,
) -> list[Handle]:
    """State appears in the first step and stays.

    `full_embeddings` says that embeddings keep fp32 state under 8-bit optimizers, as the Trainer has it.
    """
    rule = _state_rule(optimizer, full_embeddings)
    handles: list[Handle] = []

    def keep(nbytes: int, label: str, module: str) -> None:
        handles.append(builder.alloc(builder.at_step(0), nbytes, Category.OPTIMIZER_STATE, label, module))

    if any(is_8_bit(tensor, full_embeddings) for tensor in tensors):
        for table in _TABLES.get(optimizer, ()):
            keep(MAP_BYTES, f"{optimizer} {table}", "")
    for tensor in tensors:
        for kept in rule(tensor) if tensor.numel else ():
            if not kept.managed:
                keep(kept.nbytes, f"{optimizer} {kept.label}", tensor.name)
    return handles


def place_step(builder: StreamBuilder, iteration: int, optimizer: Optimizer, tensors: Sequence[LocalTensor]) -> None:
    """Temporaries of one step, in the order in which the real one makes and drops them."""
    scratch = Scratch(builder, iteration, f"{optimizer} step")
    _STEP.get(optimizer, in_place_step)(scratch, [tensor for tensor in tensors if tensor.numel])
    scratch.close()


__all__ = [
    "BITSANDBYTES",
    "SHAPED",
    "LocalTensor",
    "Role",
    "managed_bytes",
    "place_clipping",
    "place_state",
    "place_step",
    "state_bytes",
]
