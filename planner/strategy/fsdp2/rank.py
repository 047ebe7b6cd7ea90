"""FSDP2: parameters, gradients and optimizer state sharded, units gathered as they are needed.

Mirrors torch/distributed/fsdp/_fully_shard (torch 2.13) as accelerate utils/fsdp_utils.py: fsdp2_prepare_model sets it
up (fp32 upcast of trainable parameters, one unit per block, embeddings and tail on their own, no autocast around
forward): `fsdp_units` and `fsdp_layout` say what is sharded, `fsdp_passes` what a pass takes, `fsdp_collectives` what
is sent.
"""

from gpu_plan.planner.dtypes import is_floating
from gpu_plan.planner.memory.optimizer.steps import LocalTensor
from gpu_plan.planner.memory.optimizer.steps import place_steps as optimizer_steps
from gpu_plan.planner.strategy.base import (
    RankContext,
    RankPlan,
    autocast_regime,
    nbytes,
    place_buffers,
    place_weights,
    place_workspaces,
    undecayed,
)
from gpu_plan.planner.strategy.fsdp2 import host as fsdp_host
from gpu_plan.planner.strategy.fsdp2.accumulation import refuses_reduce
from gpu_plan.planner.strategy.fsdp2.collectives import collectives
from gpu_plan.planner.strategy.fsdp2.layout import Layout
from gpu_plan.planner.strategy.fsdp2.packed import packed_dtype, packed_notes
from gpu_plan.planner.strategy.fsdp2.passes import drop_gradient_shards
from gpu_plan.planner.strategy.fsdp2.structure import place_passes
from gpu_plan.planner.strategy.fsdp2.units import Wrapping, wrap_units, wrapping_notes
from gpu_plan.planner.strategy.optimizer_step import optimizer_work
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Optimizer, Peft, Precision, Stack


def refuses_optimizer(optimizer: Optimizer) -> str | None:
    """FSDP2's parameters are DTensors, which not every optimizer takes.

    bitsandbytes' kernels and transformers' Adafactor mix them with plain tensors of state, which torch refuses; for
    Muon torch redistributes matrices in ways that are not modelled.
    """
    traits = optimizer.traits
    if not traits.takes_dtensors:
        return f"{optimizer} keeps plain tensors beside FSDP2's DTensors, which torch refuses to mix; use fsdp1"
    return f"{optimizer} over sharded matrices is not in this version" if traits.matrices_only else None


def sharded_regime(precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
    """accelerate's mixed precision gathers all parameters in the 16-bit type; without it dtypes stay."""
    if precision.is_float8:
        return Regime(weights=precision.compute_dtype, float8="gathered")
    if precision.is_mixed:
        return Regime(weights=precision.compute_dtype)
    return autocast_regime(precision, stack, peft)


def refuses_sharding(context: RankContext) -> str | None:
    """Why FSDP2 cannot run a configuration, or None."""
    if context.world_size == 1:
        return "there is only one GPU"
    if context.offload is Offload.ALL and context.peft.quantises and not is_floating(packed_dtype(context)):
        return "4-bit weights that are stored as integers are not offloaded: --set quant.storage=bfloat16"
    if dict(context.settings).get("quant.base") == "int8":
        return "bitsandbytes' int8 weights cannot be sharded"
    if context.offload is Offload.ALL and context.precision.is_float8:
        return "float8 training with its parameters on the host is not in this version"
    gradients = sharded_regime(context.precision, context.stack, context.peft).trained
    return refuses_reduce(gradients, context) or refuses_optimizer(context.optimizer)


def sharded_rank(context: RankContext, wrap: Wrapping = wrap_units) -> RankPlan:
    """One rank's plan, with as many replicas of the sharded whole as the context says; `wrap` is accelerate's way."""
    regime = sharded_regime(context.precision, context.stack, context.peft)
    layout = Layout(context, regime, wrap)
    builder = layout.builder
    place_shards(layout)
    gradient_shards = place_passes(layout, wrap)
    two_groups = context.stack.traits.is_trainer
    local = [
        LocalTensor(
            name=p.name,
            numel=layout.shards[i].held_numel,
            dtype=layout.master,
            group=p.mesh,
            undecayed=two_groups and undecayed(p),
        )
        for i, p in enumerate(layout.trace.parameters)
        if layout.grouping.steps[i] and not p.tied_to
    ]
    place_steps(layout, local)
    drop_gradient_shards(builder, gradient_shards)
    elements = sum(tensor.numel for tensor in local)
    work = fsdp_host.host_optimizer_work if layout.on_host else optimizer_work
    return RankPlan(
        stream=builder.build(),
        collectives=collectives(layout),
        optimizer_work=work(context.optimizer, elements, nbytes(1, layout.master), clipping=context.clipping),
        host_bytes=_host_bytes(layout, local),
        notes=(
            *wrapping_notes(layout.trace),
            *packed_notes(context, regime),
            *([fsdp_host.NOTE] if layout.on_host else []),
        ),
    )


def place_shards(layout: Layout) -> None:
    """What stands from load on."""
    builder = layout.builder
    rows = []
    for index, parameter in enumerate(layout.trace.parameters):
        sharded = is_floating(parameter.dtype)
        if (sharded and layout.on_host) or parameter.tied_to:
            continue
        if sharded:
            rows.append(("weight shard", parameter.name, layout.stored_bytes[index]))
        else:
            whole = nbytes(parameter.numel, layout.stored_dtype(index))
            rows.append(("4-bit weight, whole on every rank", parameter.name, whole))
    place_weights(builder, rows)
    place_buffers(builder)
    place_workspaces(builder, layout.context.capability)


def place_steps(layout: Layout, local: list[LocalTensor]) -> None:
    """The optimizer's part, which leaves the device alone when it runs on the host."""
    context = layout.context
    if not layout.on_host:
        optimizer_steps(layout.builder, context.optimizer, local, clipping=context.clipping)


def _host_bytes(layout: Layout, local: list[LocalTensor]) -> int:
    if not layout.on_host:
        return 0
    weights = [layout.stored_bytes[index] for unit in layout.units for index in unit.parameters]
    return fsdp_host.host_bytes(weights, local, layout.context.optimizer)
