"""How long a prefill and a decode step take, from the speed model that training steps use."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.speed.model import Collective, CollectiveKind, OptimizerWork, SpeedModel, StepTime, StepWork
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.passes import Cut, operators_of

_NO_OPTIMIZER = OptimizerWork(parameter_bytes_read_written=0)
_GATHERS = frozenset({"index", "index_select"})
"""They read of a table (experts' weights, a cache) what they put out, not all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Seconds of one forward pass each, of the slowest rank."""

    prefill: StepTime
    decode: StepTime


def pass_time(
    part: Cut,
    cluster: Cluster,
    speed: SpeedModel,
    *,
    dtype: str,
    length: int,
    causal: bool,
    ranks: int = 1,
) -> StepTime:
    """Time of a cut that is one pass.

    `ranks`: of tensor parallel, whose collectives the trace holds. `length`: keys that each query sees. `causal`:
    whether fused attention skips half of them (a prefill, no decode).
    """
    trace = replace(_gathers_as_read(operators_of(part)), tokens_per_sample=max(1, length))
    collectives: tuple[Collective, ...] = ()
    if ranks > 1:
        trace, collectives = _without_collectives(trace, ranks)
    work = StepWork(
        trace=trace,
        micro_batch=1,  # a generation's trace holds its own batch
        compute_dtype=dtype,
        collectives=collectives,
        optimizer=_NO_OPTIMIZER,
        data_parallel=1,
        causal_attention=causal,
    )
    return speed.step_time(work, cluster)


def _gathers_as_read(trace: StepTrace) -> StepTrace:
    gathers = [index for index, name in enumerate(trace.operator_names) if name in _GATHERS]
    chosen = np.flatnonzero(np.isin(trace.op_name, gathers))
    if not len(chosen):
        return trace
    sizes = trace.bytes_fixed + trace.bytes_per_sample
    moved = trace.op_bytes_fixed.copy()
    for operator in chosen:
        written = trace.op_writes[trace.op_writes_at[operator] : trace.op_writes_at[operator + 1]]
        moved[operator] = 2.0 * float(sizes[written[written >= 0]].sum())
    return replace(trace, op_bytes_fixed=moved)


_COLLECTIVES: Mapping[str, CollectiveKind] = {
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "_allgather_base_": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
}
"""Operators of a sharded model's trace that wait for other ranks."""


def _without_collectives(trace: StepTrace, ranks: int) -> tuple[StepTrace, tuple[Collective, ...]]:
    """The trace with its collectives costing nothing on the device, and the collectives themselves, equal ones once."""
    sizes = trace.bytes_fixed + trace.bytes_per_sample
    moved = trace.op_bytes_fixed.copy()
    counts: Counter[tuple[CollectiveKind, int]] = Counter()
    for index, name in enumerate(trace.operator_names):
        kind = _COLLECTIVES.get(name)
        for operator in np.flatnonzero(trace.op_name == index) if kind else ():
            written = trace.op_writes[trace.op_writes_at[operator] : trace.op_writes_at[operator + 1]]
            nbytes = int(sizes[written[written >= 0]].sum())
            if kind == "reduce_scatter":
                nbytes *= ranks
            counts[kind or "all_reduce", nbytes] += 1
            moved[operator] = 0.0
    collectives = tuple(
        Collective(kind=kind, bytes=nbytes, count=count, phase="forward", per="micro_step", overlap=False, ranks=ranks)
        for (kind, nbytes), count in counts.items()
    )
    return replace(trace, op_bytes_fixed=moved), collectives
