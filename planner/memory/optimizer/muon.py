"""Muon for the hidden matrices, AdamW for everything else, as torch's documentation of Muon sets them up.

torch/optim/_muon.py (2.13): Muon takes two-dimensional parameters only; _single_tensor_muon makes the Nesterov
update, _zeropower_via_newtonschulz iterates on a bf16 copy of it.
"""

from collections.abc import Iterator, Sequence

from gpu_plan.planner.memory.optimizer.adam import adam_state, foreach_adam_step
from gpu_plan.planner.memory.optimizer.local_tensor import LocalTensor, Role
from gpu_plan.planner.memory.optimizer.scratch import Scratch
from gpu_plan.planner.memory.optimizer.state import Kept

ITERATIONS = 5
_BF16 = 2


def takes(tensor: LocalTensor) -> bool:
    """Whether Muon rather than AdamW steps it."""
    return len(tensor.dims) == 2 and tensor.role is Role.HIDDEN


def muon_state(tensor: LocalTensor) -> Iterator[Kept]:
    if takes(tensor):
        yield Kept("momentum_buffer", tensor.nbytes)
    else:
        yield from adam_state(tensor)


def muon_step(scratch: Scratch, tensors: Sequence[LocalTensor]) -> None:
    """Muon's loop, then AdamW's foreach step."""
    for tensor in tensors:
        if takes(tensor):
            _newton_schulz(scratch, tensor)
    scratch.close()
    foreach_adam_step(scratch, [tensor for tensor in tensors if not takes(tensor)])


def _newton_schulz(scratch: Scratch, tensor: LocalTensor) -> None:
    scratch.bind("update", tensor.nbytes, tensor.name)
    gram = _BF16 * min(tensor.dims) ** 2
    whole = tensor.as_dtype("bfloat16")
    if tensor.dtype != "bfloat16":
        scratch.bind("ortho_grad", whole, tensor.name)
    for _ in range(ITERATIONS):
        scratch.bind("gram_matrix", gram, tensor.name)
        scratch.bind("gram_update", gram, tensor.name)
        scratch.bind("ortho_grad", whole, tensor.name)
    scratch.drop("gram_matrix", "gram_update")
    scratch.move("ortho_grad", "update")
