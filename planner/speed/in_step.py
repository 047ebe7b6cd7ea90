"""Collectives that a step's own trace holds: of a model that several ranks compute together."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from gpu_plan.planner.speed.model import Collective, CollectiveKind, Phase
from gpu_plan.planner.trace.events import StepTrace

_COLLECTIVES: Mapping[str, CollectiveKind] = {
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "_allgather_base_": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
}
"""Operators of a sharded model's trace that wait for other ranks."""

_PHASES: tuple[Phase, ...] = ("forward", "backward")


def collectives_of(trace: StepTrace, ranks: int, experts: int, micro_batch: int) -> tuple[Collective, ...]:
    """Calls of one micro step, equal ones once. The computation waits for each: what follows reads what it puts out.

    `ranks` compute one copy together, `experts` send each other their tokens.
    """
    sizes = trace.tensor_bytes(micro_batch)
    counts: Counter[tuple[CollectiveKind, int, Phase]] = Counter()
    for operator, kind in _calls(trace):
        written = trace.op_writes[trace.op_writes_at[operator] : trace.op_writes_at[operator + 1]]
        nbytes = int(sizes[written[written >= 0]].sum())
        phase = _PHASES[min(int(trace.op_phase[operator]), 1)]
        counts[kind, nbytes * (ranks if kind == "reduce_scatter" else 1), phase] += 1
    return tuple(
        Collective(
            kind=kind,
            bytes=nbytes,
            count=count,
            phase=phase,
            per="micro_step",
            overlap=False,
            ranks=experts if kind == "all_to_all" else ranks,
        )
        for (kind, nbytes, phase), count in counts.items()
    )


def computation_of(trace: StepTrace) -> StepTrace:
    """The trace with its collectives costing nothing on the device itself."""
    fixed, growing = trace.op_bytes_fixed.copy(), trace.op_bytes_per_sample.copy()
    for operator, _ in _calls(trace):
        fixed[operator] = growing[operator] = 0.0
    return replace(trace, op_bytes_fixed=fixed, op_bytes_per_sample=growing)


def _calls(trace: StepTrace) -> Iterator[tuple[int, CollectiveKind]]:
    for index, name in enumerate(trace.operator_names):
        kind = _COLLECTIVES.get(name)
        if kind is not None:
            yield from ((int(operator), kind) for operator in np.flatnonzero(trace.op_name == index))
