"""Which ranks hold more than others: those that compute a copy together, and those that it is sharded over.

Both cut by torch.chunk, the first ranks getting as many rows as fit, the last fewer (torch distributed/tensor/
placement_types.py: Shard; distributed/fsdp/_fully_shard/_fsdp_param.py: FSDPParam._init_sharded_param).
"""

from collections.abc import Sequence

import numpy as np

from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.fsdp2.units import rows_of
from gpu_plan.planner.trace.events import IntArray, ParameterInfo, StepTrace
from gpu_plan.planner.units import ceil_div


def tensor_places(spec: ModelSpec, trace: StepTrace, degree: int) -> dict[int, tuple[int, ...]]:
    """Of the ranks that compute a copy together, by the first one of each kind, all that hold as much as it does.

    `trace` is the first rank's.
    """
    whole = {parameter.name: parameter.shape for parameter in spec.parameters}
    cuts = set()
    for parameter in trace.parameters:
        if parameter.experts or parameter.name not in whole:
            continue
        cuts |= {
            (size, own)
            for size, own in zip(whole[parameter.name], parameter.shape, strict=False)
            if own != size and own * degree != size
        }
    kinds: dict[tuple[int, ...], list[int]] = {}
    for rank in range(degree):
        kinds.setdefault(tuple(_part(size, own, rank) for size, own in sorted(cuts)), []).append(rank)
    return {members[0]: tuple(members) for members in kinds.values()}


def _part(size: int, first: int, rank: int) -> int:
    """Of `size` rows, of which the first rank has `first`; packed projections are cut piece by piece, which gives the
    same numbers."""
    return min(first, max(0, size - rank * first))


def shard_kinds(context: RankContext, members: Sequence[int], ranks: int) -> list[tuple[int, ...]]:
    """Ranks of a replica of so many that hold equal shards, by kind; `members` are the places in a group computing a
    copy together that the context's trace is of."""
    places = np.flatnonzero(np.isin(np.arange(ranks) % context.tensor_parallel, members))
    held = [
        _held(rows, shards, places // apart)
        for rows, shards, apart in sorted({_cut(parameter, context) for parameter in context.trace.parameters})
        if rows % shards
    ]
    if not held:
        return [tuple(places.tolist())]
    _, kinds = np.unique(np.stack(held), axis=1, return_inverse=True)
    found: dict[int, list[int]] = {}
    for place, kind in zip(places.tolist(), kinds.ravel().tolist(), strict=True):
        found.setdefault(kind, []).append(place)
    return [tuple(kind) for kind in found.values()]


def held_elements(context: RankContext) -> int:
    """Elements of the parameters that the context's rank keeps, padding left out."""
    total = 0
    for parameter in context.trace.parameters:
        rows, shards, apart = _cut(parameter, context)
        if not parameter.tied_to and rows:
            total += rows_of(rows, shards, context.place // apart) * (parameter.numel // rows)
    return total


def _cut(parameter: ParameterInfo, context: RankContext) -> tuple[int, int, int]:
    """Rows of a parameter, the ranks that they are cut for, and how far apart these stand."""
    rows = parameter.shape[0] if parameter.shape else 1
    if parameter.experts:
        return rows, context.expert_ranks, context.expert_parallel
    return rows, context.shard_ranks, context.tensor_parallel


def _held(rows: int, shards: int, places: IntArray) -> IntArray:
    """`rows_of`, of many ranks."""
    most = ceil_div(rows, shards)
    return np.clip(rows - places * most, 0, most)


def runs(places: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """First and last of each run of neighbours."""
    found: list[tuple[int, int]] = []
    for place in sorted(places):
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return tuple(found)
