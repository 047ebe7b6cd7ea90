"""What torch's own optimizers keep and take while they step, from the CPU allocator's events.

`foreach` is forced where it is asked for, since torch chooses it by itself only on accelerators. Step counters
and Python numbers (at most 16 bytes each) are left out, as they live on the host beside a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gpu_plan.planner.workload.training import Optimizer
from tests.support.cpu_reference import mark, measure
from tests.support.replay_cpu import counted

_OPTIONS: dict[Optimizer, dict[str, Any]] = {
    Optimizer("adamw"): {"foreach": True},
    Optimizer("adamw-forloop"): {"foreach": False},
    Optimizer("adamw-fused"): {"fused": True},
    Optimizer("sgd"): {"foreach": True},
    Optimizer("sgd-momentum"): {"foreach": True, "momentum": 0.9},
    Optimizer("adafactor"): {"scale_parameter": False, "relative_step": False},
    Optimizer("adamw-amsgrad"): {"foreach": True, "amsgrad": True},
    Optimizer("sgd-l2"): {"foreach": True, "weight_decay": 0.1},
    Optimizer("sgd-momentum-l2"): {"foreach": True, "momentum": 0.9, "weight_decay": 0.1},
    Optimizer("rmsprop"): {"foreach": True},
    Optimizer("rmsprop-l2"): {"foreach": True, "weight_decay": 0.1},
    Optimizer("rmsprop-momentum"): {"foreach": True, "momentum": 0.9},
    Optimizer("rmsprop-momentum-l2"): {"foreach": True, "momentum": 0.9, "weight_decay": 0.1},
    Optimizer("adagrad"): {"foreach": True},
    Optimizer("adadelta"): {"foreach": True},
    Optimizer("adadelta-l2"): {"foreach": True, "weight_decay": 0.1},
    Optimizer("nadam"): {"foreach": True},
    Optimizer("nadam-l2"): {"foreach": True, "weight_decay": 0.1},
    Optimizer("radam"): {"foreach": True},
    Optimizer("adamax"): {"foreach": True},
    Optimizer("rprop"): {"foreach": True},
    Optimizer("asgd"): {"foreach": True},
    Optimizer("adafactor-torch"): {},
    Optimizer("adamw-l2-forloop"): {"foreach": False, "weight_decay": 0.1},
    Optimizer("adamw-amsgrad-forloop"): {"foreach": False, "amsgrad": True},
    Optimizer("sgd-l2-forloop"): {"foreach": False, "weight_decay": 0.1},
    Optimizer("sgd-momentum-l2-forloop"): {"foreach": False, "momentum": 0.9, "weight_decay": 0.1},
    Optimizer("rmsprop-forloop"): {"foreach": False},
    Optimizer("rmsprop-l2-forloop"): {"foreach": False, "weight_decay": 0.1},
    Optimizer("rmsprop-momentum-forloop"): {"foreach": False, "momentum": 0.9},
    Optimizer("rmsprop-momentum-l2-forloop"): {"foreach": False, "momentum": 0.9, "weight_decay": 0.1},
    Optimizer("adagrad-forloop"): {"foreach": False},
    Optimizer("adagrad-l2-forloop"): {"foreach": False, "weight_decay": 0.1},
    Optimizer("nadam-forloop"): {"foreach": False},
    Optimizer("nadam-l2-forloop"): {"foreach": False, "weight_decay": 0.1},
    Optimizer("adamax-forloop"): {"foreach": False},
    Optimizer("adamax-l2-forloop"): {"foreach": False, "weight_decay": 0.1},
    Optimizer("muon"): {},
    Optimizer("adamw-8bit"): {"optim_bits": 8},
    Optimizer("lion"): {},
    Optimizer("lion-8bit"): {"optim_bits": 8},
    Optimizer("adamw-bnb"): {},
    Optimizer("ademamix"): {},
    Optimizer("ademamix-8bit"): {"optim_bits": 8},
    Optimizer("rmsprop-bnb"): {},
    Optimizer("rmsprop-8bit"): {"optim_bits": 8},
    Optimizer("adagrad-bnb"): {},
    Optimizer("adagrad-8bit"): {"optim_bits": 8},
    Optimizer("sgd-bnb"): {"momentum": 0.9},
    Optimizer("sgd-8bit"): {"momentum": 0.9, "optim_bits": 8},
    Optimizer("lamb"): {},
    Optimizer("lamb-8bit"): {"optim_bits": 8},
    Optimizer("lars"): {"momentum": 0.9},
    Optimizer("lars-8bit"): {"momentum": 0.9, "optim_bits": 8},
}


_MADE_WITH_STATE = frozenset(map(Optimizer, ("adagrad", "adagrad-forloop", "adagrad-l2-forloop")))
"""torch's, which make their state before any step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerReference:
    """Bytes that two steps on one parameter list allocated."""

    state_bytes: int
    """Kept after the first step."""
    first_peak: int
    """Most above what stood before the first step, state included."""
    second_temporary: int
    """Most that the second step took above the state."""
    second_left: int
    """What the second step left behind; 0 for every optimizer that is done growing."""


def _class(optimizer: Optimizer) -> Any:
    if optimizer == Optimizer("adafactor"):
        from transformers.optimization import Adafactor

        return Adafactor
    if optimizer == Optimizer("muon"):
        return torch.optim.Muon
    if optimizer.traits.package == "bitsandbytes":
        import bitsandbytes

        named = ("AdamW", "Lion", "AdEMAMix", "RMSprop", "Adagrad", "SGD", "LAMB", "LARS")
        return next(getattr(bitsandbytes.optim, name) for name in named if name.lower() == optimizer.partition("-")[0])
    if optimizer == Optimizer("adamw-l2-forloop"):
        return torch.optim.Adam
    classes = (
        *("SGD", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "AdamW"),
        *("Rprop", "ASGD", "Adafactor"),
    )
    return next(getattr(torch.optim, name) for name in classes if name.lower() == optimizer.partition("-")[0])


def optimizer_reference(
    optimizer: Optimizer,
    shapes: Sequence[tuple[int, ...]],
    *,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> OptimizerReference:
    """Steps twice over parameters of `shapes` whose gradients stand; `options` go to the torch optimizer."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(dtype)

    def made() -> Any:
        return _class(optimizer)(parameters, lr=1e-3, **{**_OPTIONS[optimizer], **options})

    # Adagrad makes its state as it is made; bitsandbytes makes its tables then, on the host.
    before = None if optimizer in _MADE_WITH_STATE else made()

    def body() -> None:
        stepper = before or made()
        stepper.step()
        mark("first")
        stepper.step()
        mark("second")

    reference = measure(body)
    sizes = np.asarray([change.nbytes for change in reference.changes], dtype=np.int64)
    live = np.concatenate([[0], np.cumsum(counted(sizes))])
    first, second = reference.marks["first"], reference.marks["second"]
    state = int(live[first])
    return OptimizerReference(
        state_bytes=state,
        first_peak=int(live[: first + 1].max()),
        second_temporary=int(live[first : second + 1].max()) - state,
        second_left=int(live[second]) - state,
    )
