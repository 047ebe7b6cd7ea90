"""Muon for the hidden matrices, AdamW for everything else, as torch's documentation of Muon sets them up.

torch/optim/_muon.py (2.13): Muon takes two-dimensional parameters only; _single_tensor_muon makes the Nesterov
update, _zeropower_via_newtonschulz iterates on a bf16 copy of it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.kinds.adamw import FUSED, adam_state, foreach_step
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Scratch

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

_ITERATIONS = 5
_BF16 = 2


def _takes(tensor: "LocalTensor") -> bool:
    """Whether Muon rather than AdamW steps it."""
    return len(tensor.dims) == 2 and tensor.is_hidden


def _state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    if _takes(tensor):
        yield Kept("momentum_buffer", tensor.nbytes)
    else:
        yield from adam_state(tensor)


def _step(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
    """Muon's loop, then AdamW's foreach step."""
    for tensor in tensors:
        if _takes(tensor):
            _newton_schulz(scratch, tensor)
    scratch.close()
    foreach_step(scratch, [tensor for tensor in tensors if not _takes(tensor)])


def _newton_schulz(scratch: Scratch, tensor: "LocalTensor") -> None:
    scratch.bind("update", tensor.nbytes, tensor.name)
    gram = _BF16 * min(tensor.dims) ** 2
    whole = tensor.as_dtype("bfloat16")
    if tensor.dtype != "bfloat16":
        scratch.bind("ortho_grad", whole, tensor.name)
    for _ in range(_ITERATIONS):
        scratch.bind("gram_matrix", gram, tensor.name)
        scratch.bind("gram_update", gram, tensor.name)
        scratch.bind("ortho_grad", whole, tensor.name)
    scratch.drop("gram_matrix", "gram_update")
    scratch.move("ortho_grad", "update")


KINDS = (
    OptimizerTraits(
        name="muon",
        place=90,
        help="torch's; AdamW for the rest",
        state=_state,
        step=_step,
        traffic=FUSED,  # its products are counted nowhere: the memory that a fused kernel passes over stands for all
        saved_bytes=(4.0, 4.0),
        package="",
        takes_dtensors=True,
        matrices_only="torch's Muon",
        optim_read=("muon",),  # axolotl
        llamafactory_switch="use_muon",
        captured=lambda seen: seen.is_torch and seen.name == "Muon",
        classes=("Muon",),
        explored=31,
    ),
)
