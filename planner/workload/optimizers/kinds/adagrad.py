"""torch's Adagrad and Adadelta.

torch/optim/adagrad.py (2.13): __init__ makes `sum`, before any step; _multi_tensor_adagrad makes the square roots `std`
and a `numerator`; weight decay makes copies of the gradients first, which are the numerator then.
torch/optim/adadelta.py: _multi_tensor_adadelta keeps `square_avg` and `acc_delta`, makes `std` and `deltas`.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import DECAYED, decays, in_lists, lists_of
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, Seen, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _kept(tensor: "LocalTensor", full_embeddings: bool, *, labels: Sequence[str]) -> Iterator[Kept]:
    yield from (Kept(label, tensor.nbytes) for label in labels)


def _adadelta(seen: Seen, *, l2: bool) -> bool:
    return in_lists(seen, "Adadelta") and decays(seen) == l2


def _ran(found: Ran, *, kind: str) -> bool:
    return found.package == "torch" and found.kind == kind


_ADADELTA = 27
"""mul (2), addcmul (3), add (2), sqrt (2), add (2), sqrt (2), div (3), mul (3), mul (2), addcmul (3), add (3)."""

KINDS = (
    OptimizerTraits(
        name="adagrad",
        place=51,
        state=partial(_kept, labels=("sum",)),
        made_with_it=True,
        step=lists_of("std", "numerator"),
        traffic=passes(13),  # addcmul (3), sqrt (2), add (2), mul (2), addcdiv (4)
        saved_bytes=(4.0, 2.0),
        package="",
        takes_dtensors=True,
        optim="adagrad",
        deepspeed_torch=("adagrad",),
        captured=lambda seen: in_lists(seen, "Adagrad") and not seen.options.get("fused"),
        ran=partial(_ran, kind="adagrad"),
        classes=("Adagrad",),
        explored=None,
    ),
    OptimizerTraits(
        name="adadelta",
        place=52,
        state=partial(_kept, labels=("square_avg", "acc_delta")),
        step=lists_of("std", "deltas"),
        traffic=passes(_ADADELTA),
        saved_bytes=(8.0, 4.0),
        package="",
        takes_dtensors=True,
        captured=partial(_adadelta, l2=False),
        ran=partial(_ran, kind="adadelta"),
        classes=("Adadelta",),
        explored=None,
    ),
    OptimizerTraits(
        name="adadelta-l2",
        place=53,
        help="with weight decay",
        state=partial(_kept, labels=("square_avg", "acc_delta")),
        step=lists_of(DECAYED, "std", "deltas"),
        traffic=passes(_ADADELTA + 3),
        saved_bytes=(8.0, 4.0),
        package="",
        takes_dtensors=True,
        captured=partial(_adadelta, l2=True),
        ran=partial(_ran, kind="adadelta"),
        explored=None,
    ),
)
