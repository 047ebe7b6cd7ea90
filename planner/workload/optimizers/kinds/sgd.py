"""torch's SGD, with momentum and without.

torch/optim/sgd.py (2.13): without momentum there is no state; the first momentum buffer is a clone of the gradient;
without weight decay both paths work in place, with it (or to maximise) _multi_tensor_sgd copies the gradients.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import DECAYED, decays, lists_of, plain_torch
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, Seen, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _momentum_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    yield Kept("momentum_buffer", tensor.nbytes)


def _no_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    return iter(())


def _captured(seen: Seen, *, momentum: bool, l2: bool) -> bool:
    """The fused kernel copies no gradients; what the loop over tensors copies is forloop's, but for nesterov's."""
    loop = not seen.options.get("fused") and seen.options.get("foreach") is False
    copies = decays(seen) and not seen.options.get("fused")
    if not plain_torch(seen) or seen.name != "SGD" or (loop and (copies or seen.options.get("nesterov"))):
        return False
    return bool(seen.options.get("momentum")) == momentum and copies == l2


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
        captured=partial(_captured, momentum=False, l2=False),
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
        captured=partial(_captured, momentum=True, l2=False),
        ran=_ran,
        explored=40,
    ),
    OptimizerTraits(
        name="sgd-l2",
        place=42,
        help="with weight decay",
        state=_no_state,
        step=lists_of(DECAYED),
        traffic=passes(6),
        saved_bytes=(0.0, 0.0),
        package="",
        takes_dtensors=True,
        with_momentum="sgd-momentum-l2",
        captured=partial(_captured, momentum=False, l2=True),
        ran=_ran,
        explored=None,
    ),
    OptimizerTraits(
        name="sgd-momentum-l2",
        place=43,
        help="with weight decay",
        state=_momentum_state,
        step=lists_of(DECAYED),
        traffic=passes(11),
        saved_bytes=(4.0, 4.0),
        package="",
        takes_dtensors=True,
        captured=partial(_captured, momentum=True, l2=True),
        ran=_ran,
        explored=None,
    ),
)
