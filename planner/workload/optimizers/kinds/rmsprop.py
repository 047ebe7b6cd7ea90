"""torch's RMSprop, with momentum (or centered) and without.

torch/optim/rmsprop.py (2.13): _multi_tensor_rmsprop keeps `square_avg`, and a `momentum_buffer` or a `grad_avg`; it
makes the square roots, `avg`, of a whole list, and with weight decay copies of the gradients beside them.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import DECAYED, decays, in_lists, lists_of
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, Seen, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor


def _state(tensor: "LocalTensor", full_embeddings: bool, *, second: bool) -> Iterator[Kept]:
    yield Kept("square_avg", tensor.nbytes)
    if second:
        yield Kept("momentum_buffer", tensor.nbytes)


def _captured(seen: Seen, *, second: bool, l2: bool) -> bool:
    """Both a momentum and a mean of gradients are a third buffer, which no name here has."""
    further = bool(seen.options.get("momentum")) + bool(seen.options.get("centered"))
    return in_lists(seen, "RMSprop") and further == second and decays(seen) == l2


def _ran(found: Ran) -> bool:
    return found.package == "torch" and found.kind == "rmsprop"


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
        captured=partial(_captured, second=second, l2=l2),
        ran=_ran,
        classes=() if second or l2 else ("RMSprop",),
        explored=None,
    )


KINDS = (
    _kind("rmsprop", 44),
    _kind("rmsprop-l2", 45, l2=True),
    _kind("rmsprop-momentum", 46, second=True),
    _kind("rmsprop-momentum-l2", 47, second=True, l2=True),
)
