"""The optimizer's part of a rank's stream and of its work."""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.memory.optimizer.steps import (
    LocalTensor,
    managed_bytes,
    place_clipping,
    place_state,
    place_step,
)
from gpu_plan.planner.memory.stream import StreamBuilder
from gpu_plan.planner.speed.model import OptimizerWork
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.units import format_bytes
from gpu_plan.planner.workload.training import Optimizer, Stack


def place_optimizer(builder: StreamBuilder, context: RankContext, tensors: Sequence[LocalTensor]) -> None:
    """Clipping, state and step of every iteration."""
    for iteration in range(len(builder.steps)):
        if context.clipping:
            place_clipping(builder, iteration, tensors)
        if iteration == 0:
            place_state(builder, context.optimizer, tensors, full_embeddings=full_embeddings(context))
        place_step(builder, iteration, context.optimizer, tensors)


def full_embeddings(context: RankContext) -> bool:
    """Whether embeddings keep fp32 state under 8-bit optimizers: the Trainer's own override."""
    return context.stack is Stack.TRAINER


def with_paged_state(plan: RankPlan, context: RankContext, tensors: Sequence[LocalTensor]) -> RankPlan:
    """Adds what a paged optimizer keeps outside the allocator.

    bitsandbytes takes it from cudaMallocManaged: the driver keeps it on the GPU while there is room and moves it to
    host memory when there is none. It is counted where it can always end up.
    """
    managed = managed_bytes(context.optimizer, tensors, full_embeddings=full_embeddings(context))
    if not managed:
        return plan
    note = (
        f"{context.optimizer} keeps {format_bytes(managed)} a rank in managed memory, outside torch's counters: "
        "on the GPU while there is room, else on the host"
    )
    return replace(plan, host_bytes=plan.host_bytes + managed, notes=(*plan.notes, note))


_FUSED_ADAM = 7
"""Weight, gradient and two states read; weight and states written: one kernel, on a GPU or a CPU."""

_TENSORS_TOUCHED = {
    Optimizer.ADAMW: 22,
    Optimizer.ADAMW_FORLOOP: 20,
    Optimizer.SGD: 3,
    Optimizer.SGD_MOMENTUM: 8,
    Optimizer.ADAFACTOR: 17,
    Optimizer.LION: 5,
}
"""Parameter-sized reads and writes of one step: operators that are not fused pass over memory one by one.

torch/optim/adam.py: _multi_tensor_adam reads and writes for mul (2), lerp (3), mul (2), addcmul (3), sqrt (2),
div (2), add (2), div (2) and addcdiv (4); _single_tensor_adam has one division less. torch/optim/sgd.py with
momentum: mul (2), add (3), add (3). Adafactor's operators touch 17: square, plus epsilon, two means, outer product,
times gradient, norm, two scalings, negation, addition, and the norm of the weights. bitsandbytes' Lion is one kernel:
weight, gradient and moment read, weight and moment written."""

_CLIPPING = 3
"""clip_grad_norm_ reads every gradient for its norm, then reads and writes it to scale it."""

_FROM_LOW_PRECISION = 20
"""Bytes an element that DeepSpeed moves around a step on the GPU (stage_1_and_2.py: step): gradients cast to fp32
(2 read, 4 written) and unscaled in place (4, 4), weights cast back (4, 2)."""

_CODED = {Optimizer.ADAMW_8BIT: 2, Optimizer.PAGED_ADAMW_8BIT: 2, Optimizer.LION_8BIT: 1}
"""Codes that bitsandbytes' one kernel reads and writes for every element."""


def optimizer_work(
    optimizer: Optimizer,
    elements: int,
    element_bytes: int,
    *,
    on_host: bool = False,
    clipping: bool = False,
    flat: bool = False,
) -> OptimizerWork:
    """Memory traffic of one optimizer step, with that of clipping before it.

    `flat`: DeepSpeed's fp32 masters stand behind 16-bit weights and gradients, which are cast on the way.
    """
    if optimizer in _CODED:
        # Weight and gradient read, weight written, codes read and written.
        touched = elements * (3 * element_bytes + 2 * _CODED[optimizer])
    else:
        # On the host DeepSpeed steps with its own Adam, one kernel (csrc/adam/cpu_adam.cpp).
        tensors = _FUSED_ADAM if on_host else _TENSORS_TOUCHED.get(optimizer, _FUSED_ADAM)
        touched = tensors * elements * element_bytes
    if clipping:
        touched += _CLIPPING * elements * element_bytes
    if flat and not on_host:
        touched += _FROM_LOW_PRECISION * elements
    return OptimizerWork(parameter_bytes_read_written=touched, on_host=on_host, elements=elements)
