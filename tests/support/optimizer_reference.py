"""What torch's own optimizers keep and take while they step, from the CPU allocator's events.

`foreach` is forced where it is asked for, since torch chooses it by itself only on accelerators. Step counters
and Python numbers (at most 16 bytes each) are left out, as they live on the host beside a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gpu_plan.planner.memory.optimizer.steps import BITSANDBYTES
from gpu_plan.planner.workload.training import Optimizer
from tests.support.cpu_reference import mark, measure
from tests.support.replay_cpu import counted

_OPTIONS: dict[Optimizer, dict[str, Any]] = {
    Optimizer.ADAMW: {"foreach": True},
    Optimizer.ADAMW_FORLOOP: {"foreach": False},
    Optimizer.ADAMW_FUSED: {"fused": True},
    Optimizer.SGD: {"foreach": True},
    Optimizer.SGD_MOMENTUM: {"foreach": True, "momentum": 0.9},
    Optimizer.ADAFACTOR: {"scale_parameter": False, "relative_step": False},
    Optimizer.MUON: {},
    Optimizer.ADAMW_8BIT: {"optim_bits": 8},
    Optimizer.LION: {},
    Optimizer.LION_8BIT: {"optim_bits": 8},
}


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
    if optimizer is Optimizer.ADAFACTOR:
        from transformers.optimization import Adafactor

        return Adafactor
    if optimizer is Optimizer.MUON:
        return torch.optim.Muon
    if optimizer in BITSANDBYTES:
        import bitsandbytes

        return bitsandbytes.optim.AdamW if optimizer is Optimizer.ADAMW_8BIT else bitsandbytes.optim.Lion
    return torch.optim.SGD if optimizer in (Optimizer.SGD, Optimizer.SGD_MOMENTUM) else torch.optim.AdamW


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
    stepper = _class(optimizer)(parameters, lr=1e-3, **{**_OPTIONS[optimizer], **options})

    def body() -> None:
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
