"""torch's Rprop and ASGD.

torch/optim/rprop.py (2.13): _multi_tensor_rprop keeps the last gradients, `prev`, and a step size for each element; it
makes `signs` for a whole list, a mask and a chosen copy of one gradient beside them, and `grad_signs` once all signs
but the last, which a loop's variable holds, are gone.
torch/optim/asgd.py: _multi_tensor_asgd keeps `ax`, and a step, `eta` and `mu` as numbers on the device; it makes
`intermediate` for a whole list twice, lets go of it each time, and makes the next two numbers of each tensor.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import by_dtype, in_lists, ran_torch, sizes_by_dtype
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Scratch, Seen, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _rprop_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    yield Kept("prev", tensor.nbytes)
    yield Kept("step_size", tensor.nbytes)


def _rprop_step(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
    for group in by_dtype(tensors):
        sizes = [tensor.nbytes for tensor in group]
        scratch.bind("signs", sizes[:-1])
        scratch.bind("last", sizes[-1])
        for tensor in group:
            scratch.drop("sign")
            for _ in range(3):
                scratch.bind("mask", tensor.numel)
                scratch.drop("mask")
        for tensor in group:
            scratch.bind("mask", tensor.numel)
            scratch.bind("chosen", tensor.nbytes)
            scratch.drop("mask", "chosen")
        scratch.drop("signs")
        scratch.move("last", "sign")
        scratch.bind("grad_signs", sizes)


_SCALAR = 4


def _asgd_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    yield from (Kept(number, _SCALAR) for number in ("step", "eta", "mu"))
    yield Kept("ax", tensor.nbytes)


def _asgd_step(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
    for sizes in sizes_by_dtype(tensors):
        for _ in range(2):
            scratch.bind("intermediate", sizes)
            scratch.drop("intermediate")
        for numbers in ("new_etas", "new_mus"):
            scratch.bind(numbers, [_SCALAR] * len(sizes))


def _asgd(seen: Seen) -> bool:
    """Gradients that are turned round would stand as a list of their own."""
    return in_lists(seen, "ASGD") and not seen.options.get("maximize")


KINDS = (
    OptimizerTraits(
        name="rprop",
        place=58,
        state=_rprop_state,
        step=_rprop_step,
        # mul (3), copy (2), sign (2), three masks and fills (10), mul (3), clamp (2), a choice (6), sign (2),
        # addcmul (4)
        traffic=passes(34),
        saved_bytes=(8.0, 4.0),
        package="",
        takes_dtensors=False,  # its masks are written through by index
        captured=lambda seen: in_lists(seen, "Rprop"),
        ran=partial(ran_torch, kind="rprop"),
        classes=("Rprop",),
        explored=None,
    ),
    OptimizerTraits(
        name="asgd",
        place=59,
        state=_asgd_state,
        step=_asgd_step,
        traffic=passes(12),  # add (3), addcmul (3), sub (3), addcmul (3)
        saved_bytes=(4.0, 2.0),
        package="",
        takes_dtensors=True,
        captured=_asgd,
        ran=partial(ran_torch, kind="asgd"),
        classes=("ASGD",),
        explored=None,
    ),
)
