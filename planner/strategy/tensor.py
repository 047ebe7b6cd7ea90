"""A rank of a model that several ranks compute together (`--tp`), or whose experts several hold (`--ep`), as
transformers' `DistributedConfig` parts it.

The trace is of one rank's part: weights have its sizes, and the collectives between the ranks of a group are operators
of the step (`gpu_plan.planner.trace.parallel`).
"""

from dataclasses import replace

from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.fsdp2.native import native_units, reduced_in_fp32
from gpu_plan.planner.strategy.fsdp2.rank import sharded_rank, sharded_regime
from gpu_plan.planner.strategy.replica import single_rank
from gpu_plan.planner.trace.variant import Regime
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Peft, Precision, Stack


def refuses_spread(context: RankContext) -> str | None:
    """Why ranks cannot compute one copy of the model, or hold its experts, together here, or None."""
    how = "expert parallel" if context.tensor_parallel == 1 else "tensor parallel"
    ranks, experts = context.world_size // context.replicate, context.expert_parallel
    if experts > 1 and ranks % experts:
        return f"--ep {experts} does not divide the {ranks} ranks of a replica"
    if context.world_size == 1:
        return "there is only one GPU"
    if context.peft.adapts:
        return f"adapters under {how} are not in this version"
    if context.precision.is_float8:
        return f"float8 training under {how} is not in this version"
    if not context.optimizer.traits.takes_dtensors:
        return f"{context.optimizer} keeps plain tensors beside DTensors, which torch refuses to mix"
    if context.tensor_parallel > 1 and context.stack.traits.cuts_sequence:
        return _refuses_cut(context)
    return _refuses_dispatch(context)


def _refuses_cut(context: RankContext) -> str | None:
    """torchtitan 0.2.2 torchtitan/distributed/utils.py: maybe_enable_amp switches mixed precision off where nothing is
    sharded."""
    title = context.stack.traits.title
    if context.precision.is_mixed and context.shard_ranks == 1:
        return (
            f"{title} computes in fp32 where tensor parallel stands alone: take --precision bf16 or fp32, or a --tp"
            " below the number of GPUs"
        )
    return None


def _refuses_dispatch(context: RankContext) -> str | None:
    """accelerate 1.15 data_loader.py: DataLoaderDispatcher._fetch_batches repeats one batch for all ranks of a mesh
    that has tensor parallel ones, or cuts it up among them."""
    settings = dict(context.settings)
    if context.tensor_parallel == 1 or settings.get("data.dispatch_batches") != "true":
        return None
    groups = context.world_size // context.tensor_parallel
    if groups > 1:
        return f"--set data.dispatch_batches=true: Accelerate would give all {groups} groups the same samples"
    if settings.get("data.split_batches") == "true":
        return "--set data.dispatch_batches=true beside data.split_batches=true: Accelerate would cut up a batch"
    return None


def shared_and_sharded_regime(precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
    """What FSDP2 gathers in the 16-bit type, and the autocast region that Accelerate puts around forward all the same:
    it does not know the model as FSDP2's (accelerate accelerator.py: prepare_model, native amp)."""
    regime = replace(sharded_regime(precision, stack, peft), ties_apart=True)
    if precision.is_mixed:
        # torch _fsdp_state.py: _pre_forward, MixedPrecisionPolicy.cast_forward_inputs.
        regime = replace(regime, experts_take=precision.compute_dtype)
    if not precision.is_mixed or not stack.traits.wraps_forward:
        return regime
    return replace(regime, autocast=precision.compute_dtype, outputs_to_fp32=True)


def shared_rank(context: RankContext) -> RankPlan:
    """A rank whose copy is shared with all others."""
    return _noted(single_rank(context), context)


def shared_and_sharded_rank(context: RankContext) -> RankPlan:
    """A rank whose part of a copy is sharded over the other groups by FSDP2."""
    return _noted(sharded_rank(reduced_in_fp32(context), native_units), context)


def _noted(plan: RankPlan, context: RankContext) -> RankPlan:
    return replace(plan, notes=(*plan.notes, *_notes(context)))


def _notes(context: RankContext) -> tuple[str, ...]:
    """What the script has to do for it, what is assumed of experts, and what it costs where groups span nodes."""
    if context.tensor_parallel > 1 and context.stack.traits.cuts_sequence:
        return (_trainer_note(context), *_across_nodes(context))
    degrees = f"tp_size={context.tensor_parallel}"
    if context.shard_ranks > 1:
        degrees += f", fsdp_size={context.shard_ranks}"
    if context.replicate > 1:
        degrees += f", dp_replicate_size={context.replicate}"
    if context.expert_parallel > 1:
        degrees += f", ep_size={context.expert_parallel}"
    if context.precision.is_mixed and context.shard_ranks > 1:
        degrees += ", fsdp_mixed_precision=True"
    notes = [
        "plan --execute spreads the script's model itself, under torchrun, gives the ranks of a group the same samples,"
        " and the optimizer and clipping one mesh at a time; a script that does so loads its model with"
        f" from_pretrained(..., distributed_config=DistributedConfig({degrees})) of transformers",
    ]
    if context.expert_parallel > 1:
        notes.append(
            "tokens are counted as if every expert were chosen equally often, by every rank; none is dropped: a rank"
            " whose experts are chosen more often holds as much more of them, and all others wait for it"
        )
    return (*notes, *_across_nodes(context))


def _trainer_note(context: RankContext) -> str:
    """Settings of the stack's own trainer, which alone spreads a model so (torchtitan/config/job_config.py)."""
    return (
        f"{context.stack.traits.title}'s own trainer spreads the model so, plan --execute does not: [parallelism]"
        f" tensor_parallel_degree = {context.tensor_parallel}, data_parallel_shard_degree = {context.shard_ranks},"
        f" data_parallel_replicate_degree = {context.replicate}; a head that is tied gets a weight of its own"
    )


def _across_nodes(context: RankContext) -> tuple[str, ...]:
    """What it costs where groups span nodes."""
    per_node, notes = context.world_size // context.nodes, []
    if context.tensor_parallel > per_node:
        notes.append(
            f"--tp {context.tensor_parallel} spans {context.tensor_parallel // per_node} nodes of {per_node} GPUs:"
            " every all-reduce of the step waits for the network; a degree within a node is usually faster"
        )
    if context.expert_parallel > per_node:
        notes.append(
            f"--ep {context.expert_parallel} spans {context.expert_parallel // per_node} nodes of {per_node} GPUs: each"
            " layer's tokens cross the network four times a step; a degree within a node is usually faster"
        )
    return tuple(notes)
