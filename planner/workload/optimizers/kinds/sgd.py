"""torch's SGD, with momentum and without.

torch/optim/sgd.py (2.13): without momentum there is no state; the first momentum buffer is a clone of the gradient;
without weight decay both paths work in place.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, Seen, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _momentum_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    yield Kept("momentum_buffer", tensor.nbytes)


def _no_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    return iter(())


def _captured(seen: Seen) -> bool:
    return seen.is_torch and seen.name == "SGD"


def _ran(found: Ran) -> bool:
    """With momentum and without it is one class."""
    return "sgd" in found.kind


KINDS = (
    OptimizerTraits(
        name="sgd",
        place=40,
        state=_no_state,
        traffic=passes(3),
        saved_bytes=(0.0, 0.0),
        package="",
        takes_dtensors=True,
        optim="sgd",
        with_momentum="sgd-momentum",
        deepspeed=("sgd",),
        deepspeed_torch=("sgd",),
        captured=lambda seen: _captured(seen) and not seen.options.get("momentum"),
        ran=_ran,
        classes=("SGD",),
        explored=41,
    ),
    OptimizerTraits(
        name="sgd-momentum",
        place=41,
        state=_momentum_state,
        traffic=passes(8),  # mul (2), add (3), add (3)
        saved_bytes=(4.0, 4.0),
        package="",
        takes_dtensors=True,
        captured=lambda seen: _captured(seen) and bool(seen.options.get("momentum")),
        ran=_ran,
        explored=40,
    ),
)
