"""Schedule-free AdamW, RAdam and SGD, which keep a second copy of the parameters in place of a first moment.

schedulefree (1.4.1): AdamWScheduleFree.step, RAdamScheduleFree.step and SGDScheduleFree.step, whose foreach way is the
default: `denom` is a list of a whole parameter group, gradients are divided and decayed in place. RAdam makes it from
its sixth step on.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import lists_of
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Ran, Seen, in_place, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

_PACKAGE = "schedulefree"


def _state(tensor: "LocalTensor", full_embeddings: bool, *, second: bool) -> Iterator[Kept]:
    """The point that gradients move, and the second moment, in the parameter's dtype."""
    yield Kept("z", tensor.nbytes)
    if second:
        yield Kept("exp_avg_sq", tensor.nbytes)


def _captured(seen: Seen, *, name: str) -> bool:
    return seen.module.startswith(_PACKAGE) and seen.name == name and bool(seen.options.get("foreach"))


def _ran(found: Ran, *, kind: str) -> bool:
    return found.package == _PACKAGE and found.kind == kind


def _kind(name: str, place: int, class_name: str, tensors: int, optim: str, *, second: bool) -> OptimizerTraits:
    return OptimizerTraits(
        name=name,
        place=place,
        state=partial(_state, second=second),
        step=lists_of("denom") if second else in_place,
        traffic=passes(tensors),
        saved_bytes=(8.0, 4.0) if second else (4.0, 2.0),
        package=_PACKAGE,
        takes_dtensors=True,
        optim=optim,
        captured=partial(_captured, name=class_name),
        ran=partial(_ran, kind=class_name.lower()),
        classes=(class_name,),
        explored=None,
    )


KINDS = (
    # mul (2), addcmul (4), div (2), sqrt (2), add (2), div (3), decay (3), lerp (3), add (3), sub (3)
    _kind("adamw-schedule-free", 70, "AdamWScheduleFree", 27, "schedule_free_adamw", second=True),
    _kind("radam-schedule-free", 71, "RAdamScheduleFree", 27, "schedule_free_radam", second=True),
    # decay (3), lerp (3), add (3), sub (3)
    _kind("sgd-schedule-free", 72, "SGDScheduleFree", 12, "schedule_free_sgd", second=False),
)
