"""FSDP2 as transformers itself wraps a model: `from_pretrained(distributed_config=DistributedConfig(fsdp_size=...))`.

transformers 5.23 distributed/fsdp.py: apply_fully_sharded_data_parallelism shards what the class's plan names: the
embedding and every layer, which are gathered again for backward, then the final norm with the head (with the embedding
where both are tied) as one group that stays whole, and at last the root. Experts that tokens are handed to come first,
each layer's on its own. `_get_fsdp_policy_kwargs` reduces in fp32.
"""

from dataclasses import replace

from gpu_plan.planner.strategy.base import MASTER, RankContext
from gpu_plan.planner.strategy.fsdp2.units import ROOT, Unit, with_parameters
from gpu_plan.planner.trace.events import ModuleLayout, StepTrace
from gpu_plan.planner.trace.remembered import of_trace


@of_trace
def native_units(trace: StepTrace, reshard_after_forward: bool) -> list[Unit]:
    """Units in the order in which transformers makes them, the root last."""
    layout = trace.layout
    experts = dict.fromkeys(parameter.module for parameter in trace.parameters if parameter.experts)
    units = [Unit(name=name, modules=(name,), reshard_after_forward=True, experts=True) for name in experts]
    again, kept = (layout.wrapped, layout.wrapped_whole) if layout.wrapped else _usual(layout)
    units += [Unit(name=name, modules=(name,), reshard_after_forward=reshard_after_forward) for name in again]
    if _is_tail(kept, layout):
        units.append(Unit(name="tail", modules=kept, reshard_after_forward=False))
    else:
        units += [Unit(name=name, modules=(name,), reshard_after_forward=False) for name in kept]
    return with_parameters(trace, [*units, Unit(name=ROOT, modules=(ROOT,), reshard_after_forward=False)])


def _usual(layout: ModuleLayout) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is gathered anew and what is kept where the class's plan was not read: that of most of them."""
    embedding, head, norm = layout.input_embedding, layout.output_embedding, layout.final_norm
    before = (embedding,) if embedding and not layout.tied else ()
    return (*before, *layout.blocks), tuple(name for name in (norm, embedding if layout.tied else head) if name)


def _is_tail(kept: tuple[str, ...], layout: ModuleLayout) -> bool:
    """distributed/fsdp.py: is_norm_and_head_pair; a group without its norm is the head's own."""
    ends = {layout.input_embedding, layout.output_embedding}
    if not layout.wrapped:
        return bool(kept)
    return len(kept) == 2 and any(f".{name}".endswith(".norm") for name in kept) and bool(ends & set(kept))


def reduced_in_fp32(context: RankContext) -> RankContext:
    """The same job with the reduce dtype of transformers' own policy, where mixed precision is and none was given."""
    if not context.precision.is_mixed or "dtype.reduce" in dict(context.settings):
        return context
    return replace(context, settings=(*context.settings, ("dtype.reduce", MASTER)))
