"""torch's AdamW and SGD: what they keep and what their steps take.

torch/optim/adam.py (2.13): _multi_tensor_adam builds `exp_avg_sq_sqrt` for a whole group at once;
_single_tensor_adam builds the square root, and its quotient `denom`, which outlives its turn; _fused_adam nothing.
torch/optim/sgd.py: without momentum there is no state; the first momentum buffer is a clone of the gradient;
without weight decay both paths work in place.
"""

from collections.abc import Iterator, Sequence

from gpu_plan.planner.memory.optimizer.local_tensor import LocalTensor
from gpu_plan.planner.memory.optimizer.scratch import Scratch
from gpu_plan.planner.memory.optimizer.state import Kept

_SCALAR = 4


def adam_state(tensor: LocalTensor) -> Iterator[Kept]:
    """Both moments in the parameter's dtype."""
    yield Kept("exp_avg", tensor.nbytes)
    yield Kept("exp_avg_sq", tensor.nbytes)


def fused_adam_state(tensor: LocalTensor) -> Iterator[Kept]:
    """The fused kernel counts steps on the device."""
    yield Kept("step", _SCALAR)
    yield from adam_state(tensor)


def momentum_state(tensor: LocalTensor) -> Iterator[Kept]:
    yield Kept("momentum_buffer", tensor.nbytes)


def no_state(tensor: LocalTensor) -> Iterator[Kept]:
    return iter(())


def in_place_step(scratch: Scratch, tensors: Sequence[LocalTensor]) -> None:
    """Nothing is made."""


def foreach_adam_step(scratch: Scratch, tensors: Sequence[LocalTensor]) -> None:
    """One list per dtype: the next group's is made before the variable lets go of the last one's."""
    groups: dict[str, list[int]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor.nbytes)
    for sizes in groups.values():
        scratch.bind("exp_avg_sq_sqrt", sizes)


def loop_adam_step(scratch: Scratch, tensors: Sequence[LocalTensor]) -> None:
    for tensor in tensors:
        scratch.bind("sqrt", tensor.nbytes, tensor.name)
        scratch.bind("denom", tensor.nbytes, tensor.name)
        scratch.drop("sqrt")
