"""torch's optimizers with foreach=False, but for AdamW's plain loop: one tensor after another.

torch/optim (2.13): adam.py: _single_tensor_adam, adagrad.py: _single_tensor_adagrad, adamax.py: _single_tensor_adamax,
nadam.py: _single_tensor_nadam, rmsprop.py: _single_tensor_rmsprop, sgd.py: _single_tensor_sgd. A loop's variables
outlive their turn: the largest tensor's temporaries count, not those of all. Weight decay that is not decoupled copies
a gradient, as maximize does; both of them are not planned together.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import DECAYED, decays, kept, plain_torch
from gpu_plan.planner.workload.optimizers.kinds.adamw import adam_state
from gpu_plan.planner.workload.optimizers.traits import (
    OptimizerTraits,
    Ran,
    Scratch,
    Seen,
    StateRule,
    passes,
)

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

_QUOTIENT, _GONE = "quotient", "gone"
"""Variables that go before the turn ends: of a value that another one is made of, or of one that is written into."""


def _loop(scratch: Scratch, tensors: Sequence["LocalTensor"], *, variables: Sequence[str]) -> None:
    """For each tensor one value as large for each variable; a copied gradient goes when the loop takes the next one."""
    for tensor in tensors:
        scratch.drop(DECAYED)
        for variable in variables:
            scratch.bind(variable, tensor.nbytes, tensor.name)
        scratch.drop(_QUOTIENT, _GONE)


def _captured(seen: Seen, *, classes: Sequence[str], l2: bool, further: int | None, amsgrad: bool) -> bool:
    options = seen.options
    if not plain_torch(seen) or seen.name not in classes or options.get("foreach") is not False:
        return False
    beside = bool(options.get("momentum")) + bool(options.get("centered"))
    if options.get("fused") or options.get("nesterov") or (further is not None and beside != further):
        return False
    both = bool(options.get("maximize")) and decays(seen, maximized=False)
    return not both and decays(seen) == l2 and bool(options.get("amsgrad")) == amsgrad


def _ran(found: Ran, *, kinds: Sequence[str]) -> bool:
    return found.package == "torch" and found.kind in kinds and not found.fused


def _kind(
    name: str,
    place: int,
    classes: Sequence[str],
    state: StateRule,
    variables: Sequence[str],
    tensors: int,
    states: int,
    *,
    l2: bool,
    further: int | None = None,
    amsgrad: bool = False,
) -> OptimizerTraits:
    return OptimizerTraits(
        name=f"{name}-l2-forloop" if l2 else f"{name}-forloop",
        place=place,
        help="foreach=False" + (", with weight decay" if l2 else ""),
        state=state,
        step=partial(_loop, variables=variables),
        traffic=passes(tensors),
        saved_bytes=(4.0 * states, 2.0 * states),
        package="",
        takes_dtensors=True,
        made_with_it=name == "adagrad",
        captured=partial(_captured, classes=classes, l2=l2, further=further, amsgrad=amsgrad),
        ran=partial(_ran, kinds=tuple(one.lower() for one in classes)),
        explored=None,
    )


def _both(
    name: str,
    place: int,
    classes: Sequence[str],
    labels: Sequence[str],
    variables: Sequence[str],
    tensors: int,
    further: int | None = None,
) -> tuple[OptimizerTraits, ...]:
    """Without a copied gradient, and with one."""
    state = partial(kept, labels=labels)
    return tuple(
        _kind(
            name,
            place + l2,
            classes,
            state,
            (*(DECAYED,) * l2, *variables),
            tensors + 3 * l2,
            len(labels),
            l2=l2,
            further=further,
        )
        for l2 in (False, True)
    )


_ADAM = ("AdamW", "Adam")
KINDS = (
    _kind("adamw", 74, _ADAM, adam_state, (DECAYED, _QUOTIENT, "denom"), 23, 2, l2=True),
    _kind("adamw-amsgrad", 75, _ADAM, partial(kept, labels=("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
          (_QUOTIENT, "denom"), 23, 3, l2=False, amsgrad=True),
    _kind("sgd", 76, ("SGD",), partial(kept, labels=()), (DECAYED,), 6, 0, l2=True, further=0),
    _kind("sgd-momentum", 77, ("SGD",), partial(kept, labels=("momentum_buffer",)), (_GONE,), 11, 1, l2=True,
          further=1),
    *_both("rmsprop", 78, ("RMSprop",), ("square_avg",), ("avg",), 13, 0),
    *_both("rmsprop-momentum", 80, ("RMSprop",), ("square_avg", "momentum_buffer"), ("avg",), 18, 1),
    *_both("adagrad", 82, ("Adagrad",), ("sum",), ("std",), 13),
    *_both("nadam", 84, ("NAdam",), ("exp_avg", "exp_avg_sq"), (_QUOTIENT, "denom"), 22),
    *_both("adamax", 86, ("Adamax",), ("exp_avg", "exp_inf"), (_GONE,), 16),
)  # fmt: skip
