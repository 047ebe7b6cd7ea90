"""What a rank takes at least that computes its samples by itself: where that leaves no room it is not laid out."""

from math import ceil

from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.memory.stream.traced import least_peaks
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.compilation import is_approximate
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.search.training.evaluation import evaluated
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.provider import TraceProvider

_BITS = 16
"""Of an element of weights at least, whatever type an engine holds them in; packed ones have fewer."""


def weights_overflow(evaluator: Evaluator, family: Family) -> bool:
    """Whether the weights alone leave no room where they stand on the devices, each rank with its part."""
    if not _is_bounded(evaluator, family) or family.offload not in (Offload.NONE, Offload.OPTIMIZER):
        return False
    ranks = evaluator.cluster.world_size // evaluator.replicas(family) if family.strategy.traits.shards_model else 1
    trace = evaluator.provider.static_trace(evaluator.variant(family).regime)
    bits = sum(one.numel * min(_BITS, element_bits(one.dtype)) for one in trace.parameters if not one.tied_to)
    return _exceeds(evaluator, ceil(bits / 8 / ranks))


def step_overflows(evaluator: Evaluator, family: Family, batch: Batch) -> bool:
    """Whether what the step itself allocates leaves no room, whatever a strategy has beside it. Asks for its trace."""
    if not _is_bounded(evaluator, family):
        return False
    trace = evaluator.provider.trace(evaluator.variant(family), batch.micro_batch)
    return _exceeds(evaluator, least_peaks(trace)(batch.micro_batch))


def _is_bounded(evaluator: Evaluator, family: Family) -> bool:
    """Whether a rank's stream has all that is counted here, and judging it would have asked for no other trace."""
    alone = family.copy_ranks == family.expert_parallel == 1 and family.layout is None and family.pipeline is None
    plain = type(evaluator) is Evaluator and isinstance(evaluator.provider, TraceProvider)
    others = is_approximate(evaluator.workload, family.strategy.name) or evaluated(evaluator.workload, 1) is not None
    return alone and plain and not others


def _exceeds(evaluator: Evaluator, nbytes: int) -> bool:
    return nbytes + sum(term.low for term in evaluator.outside_terms) > evaluator.capacity_bytes
