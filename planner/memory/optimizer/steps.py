"""What an optimizer keeps and what its step allocates on one rank, from that rank's own list of tensors.

The rules are the optimizers' own (gpu_plan.planner.workload.optimizers.kinds): read in their sources, which their files
name, and held against real runs in the tests.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gpu_plan.planner.memory.optimizer.clipping import place_clipping
from gpu_plan.planner.memory.optimizer.scratch import Scratch
from gpu_plan.planner.memory.stream.placing import Handle, Placer
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor, Role
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.optimizers.traits import Kept


def _kept(optimizer: Optimizer, tensors: Sequence[LocalTensor], full_embeddings: bool) -> Iterator[tuple[Kept, int]]:
    """Of each kind of tensor, and how many there are: their names change nothing."""
    rule = optimizer.traits.state
    for alike, count in Counter(tensor[1:] for tensor in tensors if tensor.numel).items():
        for kept in rule(LocalTensor("", *alike), full_embeddings):
            yield kept, count


def state_bytes(optimizer: Optimizer, tensors: Sequence[LocalTensor], *, full_embeddings: bool = False) -> int:
    """Requested bytes of the optimizer's state, wherever it lies; tables shared by all parameters are left out."""
    return sum(kept.nbytes * count for kept, count in _kept(optimizer, tensors, full_embeddings))


def managed_bytes(optimizer: Optimizer, tensors: Sequence[LocalTensor], *, full_embeddings: bool = False) -> int:
    """Bytes of state in CUDA managed memory, which no counter of torch's allocator sees."""
    return sum(kept.nbytes * count for kept, count in _kept(optimizer, tensors, full_embeddings) if kept.managed)


def _rows(
    optimizer: Optimizer, tensors: Sequence[LocalTensor], full_embeddings: bool
) -> Iterator[tuple[str, str, int]]:
    """Label, parameter and bytes of what is kept in torch's allocator."""
    traits = optimizer.traits
    for table in traits.shared(tensors, full_embeddings):
        yield f"{optimizer} {table.label}", "", table.nbytes
    for tensor in tensors:
        if tensor.numel:
            for one in traits.state(tensor, full_embeddings):
                if not one.managed:
                    yield f"{optimizer} {one.label}", tensor.name, one.nbytes


def place_state(
    builder: Placer,
    optimizer: Optimizer,
    tensors: Sequence[LocalTensor],
    *,
    full_embeddings: bool = False,
) -> list[Handle]:
    """State appears in the first step and stays.

    `full_embeddings` says that embeddings keep fp32 state under 8-bit optimizers, as the Trainer has it.
    """
    return builder.alloc_in_step(0, _rows(optimizer, tensors, full_embeddings), Category.OPTIMIZER_STATE)


def place_step(builder: Placer, iteration: int, optimizer: Optimizer, tensors: Sequence[LocalTensor]) -> None:
    """Temporaries of one step, in the order in which the real one makes and drops them."""
    scratch = Scratch(builder, iteration, f"{optimizer} step")
    optimizer.traits.step(scratch, [tensor for tensor in tensors if tensor.numel])
    scratch.close()


def place_update(
    builder: Placer,
    iteration: int,
    optimizer: Optimizer,
    tensors: Sequence[LocalTensor],
    *,
    full_embeddings: bool = False,
) -> None:
    """A whole step of torch.optim: of each group of parameters its state, in the first step, and then its update."""
    numbers = dict.fromkeys((tensor.undecayed, tensor.group) for tensor in tensors)
    for number in sorted(numbers, key=lambda one: one[0]):
        group = [tensor for tensor in tensors if (tensor.undecayed, tensor.group) == number]
        if iteration == 0 and not optimizer.traits.made_with_it:
            place_state(builder, optimizer, group, full_embeddings=full_embeddings)
        place_step(builder, iteration, optimizer, group)


def place_steps(
    builder: Placer,
    optimizer: Optimizer,
    tensors: Sequence[LocalTensor],
    *,
    clipping: bool,
    full_embeddings: bool = False,
) -> None:
    """Clipping, state and step of every iteration: what steps the same tensors places the same, and is worked out
    once. States that are made with the optimizer stand behind what was loaded."""
    if optimizer.traits.made_with_it:
        builder.alloc_in(0, _rows(optimizer, tensors, full_embeddings), Category.OPTIMIZER_STATE)
    builder.splice(_steps(optimizer, tuple(tensors), clipping, full_embeddings, builder.steps_begin()))


@lru_cache(maxsize=16)
def _steps(
    optimizer: Optimizer,
    tensors: tuple[LocalTensor, ...],
    clipping: bool,
    full_embeddings: bool,
    begin: tuple[tuple[int, int], ...],
) -> Placer:
    """To be spliced in."""
    made = Placer.beginning(begin)
    for iteration in range(len(begin)):
        if clipping:
            place_clipping(made, iteration, tensors)
        place_update(made, iteration, optimizer, tensors, full_embeddings=full_embeddings)
    return made


__all__ = [
    "LocalTensor",
    "Role",
    "managed_bytes",
    "place_clipping",
    "place_state",
    "place_step",
    "place_steps",
    "place_update",
    "state_bytes",
]
