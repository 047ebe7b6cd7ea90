"""The optimizer's part of a rank's stream and of its work."""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.memory.optimizer.steps import (
    LocalTensor,
    managed_bytes,
    place_steps,
)
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.speed.model import OptimizerWork
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.units import format_bytes
from gpu_plan.planner.workload.optimizers.registry import Optimizer
from gpu_plan.planner.workload.optimizers.traits import Traffic, passes


def place_optimizer(builder: StreamBuilder, context: RankContext, tensors: Sequence[LocalTensor]) -> None:
    """Clipping, state and step of every iteration."""
    place_steps(
        builder, context.optimizer, tensors, clipping=context.clipping, full_embeddings=full_embeddings(context)
    )


def full_embeddings(context: RankContext) -> bool:
    """Whether embeddings keep fp32 state under 8-bit optimizers: the Trainer's own override."""
    return context.stack.traits.is_trainer


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


_DEEPSPEED_CPU_ADAM = passes(7)
"""One kernel: weight, gradient and two states read; weight and states written (csrc/adam/cpu_adam.cpp)."""

_CLIPPING = 3
"""clip_grad_norm_ reads every gradient for its norm, then reads and writes it to scale it."""

_FROM_LOW_PRECISION = 20
"""Bytes an element that DeepSpeed moves around a step on the GPU (stage_1_and_2.py: step): gradients cast to fp32
(2 read, 4 written) and unscaled in place (4, 4), weights cast back (4, 2)."""


def optimizer_work(
    optimizer: Optimizer,
    elements: int,
    element_bytes: int,
    *,
    on_host: bool = False,
    clipping: bool = False,
    flat: bool = False,
    traffic: Traffic | None = None,
) -> OptimizerWork:
    """Memory traffic of one optimizer step, with that of clipping before it.

    `on_host`: DeepSpeed steps with its own CPU Adam. `traffic`: of a step that is not the optimizer's on a GPU.
    `flat`: DeepSpeed's fp32 masters stand behind 16-bit weights and gradients, which are cast on the way.
    """
    rule = _DEEPSPEED_CPU_ADAM if on_host else traffic or optimizer.traits.traffic
    touched = elements * rule(element_bytes)
    if clipping:
        touched += _CLIPPING * elements * element_bytes
    if flat and not on_host:
        touched += _FROM_LOW_PRECISION * elements
    return OptimizerWork(parameter_bytes_read_written=touched, on_host=on_host, elements=elements)
