"""What torch's foreach steps share: they go over lists of all tensors of one dtype (torch/optim/optimizer.py (2.13):
Optimizer._group_tensors_by_device_and_dtype), and loop variables hold the last list's until the next one's are made."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor
    from gpu_plan.planner.workload.optimizers.traits import Scratch, Seen, StepRule

DECAYED = "decayed"
"""Gradients to which weight decay was added: a list of copies, `_foreach_add(grads, params, alpha=weight_decay)`."""


def sizes_by_dtype(tensors: Iterable["LocalTensor"]) -> list[list[int]]:
    """Bytes of the tensors of each dtype, in the order in which dtypes come."""
    groups: dict[str, list[int]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor.nbytes)
    return list(groups.values())


def lists_of(*variables: str) -> "StepRule":
    """A step that makes, for each dtype, one list as large as the parameters for each of these local variables."""

    def step(scratch: "Scratch", tensors: Sequence["LocalTensor"]) -> None:
        for sizes in sizes_by_dtype(tensors):
            scratch.drop(DECAYED)  # the loop binds the gradients themselves before it copies them again
            for variable in variables:
                scratch.bind(variable, sizes)

    return step


def in_lists(seen: "Seen", name: str) -> bool:
    """Whether a script's optimizer is torch's of this class, in its foreach implementation."""
    return seen.is_torch and seen.name == name and seen.options.get("foreach") is not False


def decays(seen: "Seen") -> bool:
    """Whether weight decay goes into the gradients (L2), which are copied for it."""
    return bool(seen.options.get("weight_decay")) and not seen.options.get("decoupled_weight_decay")
