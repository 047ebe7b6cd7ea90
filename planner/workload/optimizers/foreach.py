"""What torch's foreach steps share: they go over lists of all tensors of one dtype (torch/optim/optimizer.py (2.13):
Optimizer._group_tensors_by_device_and_dtype), and loop variables hold the last list's until the next one's are made."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.traits import Kept, Ran, Scratch, Seen, StepRule

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

DECAYED = "decayed"
"""Gradients to which weight decay was added: a list of copies, `_foreach_add(grads, params, alpha=weight_decay)`."""


def by_dtype(tensors: Iterable["LocalTensor"]) -> list[list["LocalTensor"]]:
    """The tensors of each dtype, in the order in which dtypes come."""
    groups: dict[str, list[LocalTensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.values())


def sizes_by_dtype(tensors: Iterable["LocalTensor"]) -> list[list[int]]:
    """Bytes of the tensors of each dtype, likewise."""
    return [[tensor.nbytes for tensor in group] for group in by_dtype(tensors)]


def lists_of(*variables: str) -> StepRule:
    """A step that makes, for each dtype, one list as large as the parameters for each of these local variables."""

    def step(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
        for sizes in sizes_by_dtype(tensors):
            scratch.drop(DECAYED)  # the loop binds the gradients themselves before it copies them again
            for variable in variables:
                scratch.bind(variable, sizes)

    return step


def plain_torch(seen: Seen) -> bool:
    """Whether a script's optimizer is one of torch's own, whose steps make what these rules say.

    One that can be captured in a CUDA graph, or differentiated through, makes more.
    """
    return seen.is_torch and not seen.options.get("differentiable") and not seen.options.get("capturable")


def in_lists(seen: Seen, name: str) -> bool:
    """Whether a script's optimizer is torch's of this class, in its foreach implementation."""
    return plain_torch(seen) and seen.name == name and seen.options.get("foreach") is not False


def decays(seen: Seen, *, maximized: bool = True) -> bool:
    """Whether gradients are copied: weight decay goes into them (L2), or they are turned round (`maximize`)."""
    turned = maximized and bool(seen.options.get("maximize"))
    return turned or (bool(seen.options.get("weight_decay")) and not seen.options.get("decoupled_weight_decay"))


def kept(tensor: "LocalTensor", full_embeddings: bool, *, labels: Sequence[str]) -> Iterator[Kept]:
    """States of a parameter's own size and type."""
    yield from (Kept(label, tensor.nbytes) for label in labels)


def ran_torch(found: Ran, *, kind: str) -> bool:
    """Whether a run was of torch's class of that name."""
    return found.package == "torch" and found.kind == kind
