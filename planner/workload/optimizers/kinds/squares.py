"""torch's optimizers that divide by the root of squares that they sum or average: RMSprop, Adagrad, Adadelta.

torch/optim/rmsprop.py (2.13): _multi_tensor_rmsprop keeps `square_avg`, and a `momentum_buffer` or a `grad_avg`; it
makes the square roots, `avg`, of a whole list, and with weight decay copies of the gradients beside them.
torch/optim/adagrad.py: __init__ makes `sum`, before any step; _multi_tensor_adagrad makes the square roots `std` and a
`numerator`; weight decay makes copies of the gradients first, which are the numerator then.
torch/optim/adadelta.py: _multi_tensor_adadelta keeps `square_avg` and `acc_delta`, makes `std` and `deltas`.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import DECAYED, decays, in_lists, kept, lists_of, ran_torch
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Seen, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _state(tensor: "LocalTensor", full_embeddings: bool, *, second: bool) -> Iterator[Kept]:
    yield Kept("square_avg", tensor.nbytes)
    if second:
        yield Kept("momentum_buffer", tensor.nbytes)


def _rmsprop(seen: Seen, *, second: bool, l2: bool) -> bool:
    """Both a momentum and a mean of gradients are a third buffer, which no name here has."""
    further = bool(seen.options.get("momentum")) + bool(seen.options.get("centered"))
    return in_lists(seen, "RMSprop") and further == second and decays(seen) == l2


def _kind(name: str, place: int, *, second: bool = False, l2: bool = False) -> OptimizerTraits:
    # mul (2), addcmul (3), sqrt (2), add (2), addcdiv (4); a momentum's mul (2), addcdiv (4) and add (3) for the last
    plain = 18 if second else 13
    return OptimizerTraits(
        name=name,
        place=place,
        help="with weight decay" if l2 else "",
        state=partial(_state, second=second),
        step=lists_of(DECAYED, "avg") if l2 else lists_of("avg"),
        traffic=passes(plain + 3 * l2),
        saved_bytes=(8.0, 4.0) if second else (4.0, 2.0),
        package="",
        takes_dtensors=True,
        optim="" if second or l2 else "rmsprop",
        with_momentum="" if second else f"rmsprop-momentum{'-l2' * l2}",
        captured=partial(_rmsprop, second=second, l2=l2),
        ran=partial(ran_torch, kind="rmsprop"),
        classes=() if second or l2 else ("RMSprop",),
        explored=None,
    )


def _adadelta(seen: Seen, *, l2: bool) -> bool:
    return in_lists(seen, "Adadelta") and decays(seen) == l2


_ADADELTA = 27
"""mul (2), addcmul (3), add (2), sqrt (2), add (2), sqrt (2), div (3), mul (3), mul (2), addcmul (3), add (3)."""

_OTHERS = (
    OptimizerTraits(
        name="adagrad",
        place=51,
        state=partial(kept, labels=("sum",)),
        made_with_it=True,
        step=lists_of("std", "numerator"),
        traffic=passes(13),  # addcmul (3), sqrt (2), add (2), mul (2), addcdiv (4)
        saved_bytes=(4.0, 2.0),
        package="",
        takes_dtensors=True,
        optim="adagrad",
        deepspeed_torch=("adagrad",),
        captured=lambda seen: in_lists(seen, "Adagrad") and not seen.options.get("fused"),
        ran=partial(ran_torch, kind="adagrad"),
        classes=("Adagrad",),
        explored=None,
    ),
    OptimizerTraits(
        name="adadelta",
        place=52,
        state=partial(kept, labels=("square_avg", "acc_delta")),
        step=lists_of("std", "deltas"),
        traffic=passes(_ADADELTA),
        saved_bytes=(8.0, 4.0),
        package="",
        takes_dtensors=True,
        captured=partial(_adadelta, l2=False),
        ran=partial(ran_torch, kind="adadelta"),
        classes=("Adadelta",),
        explored=None,
    ),
    OptimizerTraits(
        name="adadelta-l2",
        place=53,
        help="with weight decay",
        state=partial(kept, labels=("square_avg", "acc_delta")),
        step=lists_of(DECAYED, "std", "deltas"),
        traffic=passes(_ADADELTA + 3),
        saved_bytes=(8.0, 4.0),
        package="",
        takes_dtensors=True,
        captured=partial(_adadelta, l2=True),
        ran=partial(ran_torch, kind="adadelta"),
        explored=None,
    ),
)

KINDS = (
    _kind("rmsprop", 44),
    _kind("rmsprop-l2", 45, l2=True),
    _kind("rmsprop-momentum", 46, second=True),
    _kind("rmsprop-momentum-l2", 47, second=True, l2=True),
    *_OTHERS,
)
