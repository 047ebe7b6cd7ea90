"""torch's NAdam, RAdam and Adamax, each with two states as AdamW's.

torch/optim/nadam.py (2.13): _multi_tensor_nadam makes `exp_avg_sq_sqrt`, beside gradients that weight decay has copied;
radam.py: _multi_tensor_radam lets go of such copies before it makes `buffer`; adamax.py: _multi_tensor_adamax makes the
gradients' absolute values, in the copies where there are some. Decoupled weight decay works in place.
"""

from functools import partial

from gpu_plan.planner.workload.optimizers.foreach import DECAYED, decays, in_lists, lists_of, ran_torch
from gpu_plan.planner.workload.optimizers.kinds.adamw import adam_state
from gpu_plan.planner.workload.optimizers.traits import OptimizerTraits, Seen, StepRule, passes


def _nadam(seen: Seen, *, l2: bool) -> bool:
    return in_lists(seen, "NAdam") and decays(seen) == l2


def _kind(
    name: str, place: int, step: StepRule, tensors: int, class_name: str, *, l2: bool | None = None
) -> OptimizerTraits:
    return OptimizerTraits(
        name=name,
        place=place,
        help="with weight decay" if l2 else "",
        state=adam_state,
        step=step,
        traffic=passes(tensors),
        saved_bytes=(8.0, 4.0),
        package="",
        takes_dtensors=True,
        captured=partial(_nadam, l2=l2) if l2 is not None else lambda seen: in_lists(seen, class_name),
        ran=partial(ran_torch, kind=class_name.lower()),
        classes=() if l2 else (class_name,),
        explored=None,
    )


KINDS = (
    # lerp (3), mul (2), addcmul (3), sqrt (2), div (2), add (2), addcdiv (4) twice
    _kind("nadam", 54, lists_of("exp_avg_sq_sqrt"), 22, "NAdam", l2=False),
    _kind("nadam-l2", 55, lists_of(DECAYED, "exp_avg_sq_sqrt"), 25, "NAdam", l2=True),
    # lerp (3), mul (2), addcmul (3), sqrt (2), add (2), div (2), reciprocal (2), add (2), addcmul (4)
    _kind("radam", 56, lists_of("buffer"), 22, "RAdam"),
    # lerp (3), mul (2), abs (2), add (2), maximum (3), addcdiv (4)
    _kind("adamax", 57, lists_of("grouped_grads"), 16, "Adamax"),
)
