"""FSDP2 as transformers itself wraps a model: `from_pretrained(distributed_config=DistributedConfig(fsdp_size=...))`.

transformers 5.23 distributed/fsdp.py: apply_fully_sharded_data_parallelism shards what the class's plan names: the
embedding and every layer, which are gathered again for backward, then the final norm with the head (with the embedding
where both are tied) as one group that stays whole, and at last the root. Experts that tokens are handed to come first,
each layer's on its own. `_get_fsdp_policy_kwargs` reduces in fp32.
"""

from dataclasses import replace

from gpu_plan.planner.strategy.base import MASTER, RankContext
from gpu_plan.planner.strategy.fsdp2.units import ROOT, Unit, with_parameters
from gpu_plan.planner.trace.events import StepTrace


def native_units(trace: StepTrace, reshard_after_forward: bool) -> list[Unit]:
    """Units in the order in which transformers makes them, the root last."""
    layout = trace.layout
    embedding, head, norm = layout.input_embedding, layout.output_embedding, layout.final_norm
    units = [Unit(name=name, modules=(name,), reshard_after_forward=reshard_after_forward) for name in layout.blocks]
    if embedding and not layout.tied:
        units.insert(0, Unit(name=embedding, modules=(embedding,), reshard_after_forward=reshard_after_forward))
    experts = dict.fromkeys(parameter.module for parameter in trace.parameters if parameter.experts)
    units = [Unit(name=name, modules=(name,), reshard_after_forward=True, experts=True) for name in experts] + units
    tail = tuple(name for name in (norm, embedding if layout.tied else head) if name)
    if tail:
        units.append(Unit(name="tail", modules=tail, reshard_after_forward=False))
    return with_parameters(trace, [*units, Unit(name=ROOT, modules=(ROOT,), reshard_after_forward=False)])


def reduced_in_fp32(context: RankContext) -> RankContext:
    """The same job with the reduce dtype of transformers' own policy, where mixed precision is and none was given."""
    if not context.precision.is_mixed or "dtype.reduce" in dict(context.settings):
        return context
    return replace(context, settings=(*context.settings, ("dtype.reduce", MASTER)))
