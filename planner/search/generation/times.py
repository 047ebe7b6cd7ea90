"""How long a prefill and a decode step take, from the speed model that training steps use."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.speed.in_step import collectives_of, computation_of
from gpu_plan.planner.speed.model import Collective, OptimizerWork, SpeedModel, StepTime, StepWork
from gpu_plan.planner.speed.operators import written_by
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
        trace, collectives = computation_of(trace), collectives_of(trace, ranks, 1, 1)
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


def summed(passes: Sequence[tuple[StepTime, float]]) -> StepTime:
    """Passes one after the other, each as often as is said."""
    return replace(
        passes[-1][0],
        step_seconds=sum(count * time.step_seconds for time, count in passes),
        ends=lambda: (
            sum(count * time.low_seconds for time, count in passes),
            sum(count * time.high_seconds for time, count in passes),
        ),
        communication_seconds=sum(count * time.communication_seconds for time, count in passes),
        mfu=None,
        corners=lambda: _corners(passes),
    )


def _corners(passes: Sequence[tuple[StepTime, float]]) -> tuple[float, ...]:
    """Sums of each; of what is not known apart, none."""
    known = [(time.corners(), count) for time, count in passes if time.corners is not None]
    if len(known) < len(passes):
        return ()
    return tuple(sum(count * values[place] for values, count in known) for place in range(len(known[0][0])))


def _gathers_as_read(trace: StepTrace) -> StepTrace:
    gathers = [index for index, name in enumerate(trace.operator_names) if name in _GATHERS]
    chosen = np.flatnonzero(np.isin(trace.op_name, gathers))
    if not len(chosen):
        return trace
    sizes = trace.bytes_fixed + trace.bytes_per_sample
    moved = trace.op_bytes_fixed.copy()
    for operator in chosen:
        moved[operator] = 2.0 * float(sizes[written_by(trace, operator)].sum())
    return replace(trace, op_bytes_fixed=moved)
