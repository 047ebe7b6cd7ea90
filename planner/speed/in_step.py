"""Collectives that a step's own trace holds: of a model that several ranks compute together."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from gpu_plan.planner.context.split import SequenceSplit
from gpu_plan.planner.speed.model import Collective, CollectiveKind, Phase
from gpu_plan.planner.speed.operators import written_by
from gpu_plan.planner.trace.events import IntArray, Kind, Mark, StepTrace

_COLLECTIVES: Mapping[str, CollectiveKind] = {
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "_allgather_base_": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "allgather_": "all_gather",
}
"""Operators of a sharded model's trace that wait for other ranks."""

_TO_HOST, _FROM_HOST = "to_host", "from_host"
"""Copies of what waits in host memory (planner.trace.setup.host_inputs)."""
_BACKWARD = 1
"""Of a trace's phases: forward, backward, recomputed."""
_PHASES: tuple[Phase, ...] = ("forward", "backward")


def collectives_of(
    trace: StepTrace, ranks: int, experts: int, micro_batch: int, *, asynchronous: bool = False
) -> tuple[Collective, ...]:
    """Calls of one micro step, equal ones once. The computation waits for each: what follows reads what it puts out.

    `ranks` compute one copy together, `experts` send each other their tokens. `asynchronous`: a library that waits for
    a call in backward no sooner than something reads what it puts out.
    """
    sizes = trace.tensor_bytes(micro_batch)
    counts: Counter[tuple[CollectiveKind, int, Phase, float]] = Counter()
    for operator, kind in _calls(trace):
        nbytes = _bytes_of(trace, operator, kind, ranks, sizes)
        phase = _PHASES[min(int(trace.op_phase[operator]), 1)]
        waits = not asynchronous or kind == "all_to_all" or phase == "forward"
        counts[kind, nbytes, phase, 0.0 if waits else _beside(trace, operator, micro_batch)] += 1
    return tuple(
        Collective(
            kind=kind,
            bytes=nbytes,
            count=count,
            phase=phase,
            per="micro_step",
            overlap=False,
            ranks=experts if kind == "all_to_all" else ranks,
            axis="expert" if kind == "all_to_all" else "tensor",
            products=products,
        )
        for (kind, nbytes, phase, products), count in counts.items()
        if nbytes
    )


def _bytes_of(trace: StepTrace, operator: int, kind: CollectiveKind, ranks: int, sizes: IntArray) -> int:
    """Of the whole tensor, as `Collective` counts it. What goes into a buffer that was there, or into a tensor that the
    operator's schema does not say it writes (c10d's alltoall_base_), is known by what is sent."""
    found = int(sizes[written_by(trace, operator)].sum()) * (ranks if kind == "reduce_scatter" else 1)
    if found:
        return found
    read = _read_by(trace, operator)
    sent = int(sizes[read[-1]]) if len(read) and read[-1] >= 0 else 0
    return sent * (ranks if kind == "all_gather" else 1)


def _read_by(trace: StepTrace, operator: int) -> IntArray:
    """In the order of its arguments; -1 for what is no tensor of the trace."""
    found: IntArray = trace.op_reads[trace.op_reads_at[operator] : trace.op_reads_at[operator + 1]]
    return found


def _beside(trace: StepTrace, operator: int, micro_batch: int) -> float:
    """FLOPs of what stands between a call and the first operator that reads what it puts out, in its own phase; 0 where
    none does."""
    written = written_by(trace, operator)
    if not len(written):
        return 0.0
    phase = trace.op_phase[operator]
    for later in range(operator + 1, len(trace.op_phase)):
        if trace.op_phase[later] != phase:
            return 0.0
        if np.isin(_read_by(trace, later), written).any():
            between = slice(operator + 1, later)
            fixed, growing = trace.op_flops_fixed[between], trace.op_flops_per_sample[between]
            return float((fixed + growing * micro_batch).sum())
    return 0.0


def exchanges_of(
    trace: StepTrace, split: SequenceSplit, micro_batch: int, *, across_nodes: bool
) -> tuple[Collective, ...]:
    """Calls of one micro step of ranks that share samples' tokens, equal ones once.

    Under Ulysses the computation waits for each. A ring's rank computes one block of attention while the next one's
    keys and values come, and while the gradients of the last one go on; the last of those it waits for (torch
    _context_parallel/_attention.py: _templated_ring_attention, _templated_ring_attention_backward).
    """
    sizes = trace.tensor_bytes(micro_batch)
    counts: Counter[tuple[CollectiveKind, int, int]] = Counter()
    for operator, kind in _calls(trace):
        counts[kind, int(sizes[written_by(trace, operator)].sum()), int(trace.op_phase[operator])] += 1
    found = []
    for (kind, nbytes, phase), count in counts.items():
        goes_round = split.method == "ring" and kind == "all_to_all"
        largest = max((size for other, size, at in counts if (other, at) == (kind, phase)), default=0)
        gradients = goes_round and phase == _BACKWARD and nbytes == largest
        # Keys and values that go round share a block with the gradients.
        beside = 0.5 if phase == _BACKWARD and goes_round and split.rotation == "alltoall" else 1.0
        call = Collective(
            kind="broadcast" if goes_round else kind,
            bytes=nbytes,
            count=count,
            phase=_PHASES[min(phase, 1)],
            per="micro_step",
            overlap=False,
            ranks=2 if goes_round else split.degree,
            across_nodes=goes_round and across_nodes,
            beside=(phase, beside) if split.method == "ring" else (0, 0.0),
            axis="context",
        )
        last = count // split.degree if gradients else 0
        found += [replace(call, count=count - last)]
        found += [replace(call, count=last, beside=(0, 0.0))] if last else []
    return tuple(found)


def host_copies_of(trace: StepTrace, micro_batch: int) -> tuple[Collective, ...]:
    """Copies between device and host of one micro step, on the stream that computes; equal ones once."""
    return tuple(
        Collective(
            kind="device_to_host" if to_host else "host_to_device",
            bytes=nbytes,
            count=count,
            phase="forward" if to_host else "backward",
            per="micro_step",
            overlap=False,
        )
        for to_host in (True, False)
        for nbytes, count in _copied(trace, micro_batch, to_host=to_host).items()
    )


def kept_on_host(trace: StepTrace, micro_batch: int) -> int:
    """Bytes that wait in pinned host memory between forward and backward."""
    return sum(nbytes * count for nbytes, count in _copied(trace, micro_batch, to_host=True).items())


def _copied(trace: StepTrace, micro_batch: int, *, to_host: bool) -> Counter[int]:
    """How often so many bytes are copied: what comes back is what went."""
    name = _TO_HOST if to_host else _FROM_HOST
    found: Counter[int] = Counter()
    if _FROM_HOST not in trace.operator_names or name not in trace.operator_names:
        return found
    sizes = trace.tensor_bytes(micro_batch)
    for operator in np.flatnonzero(trace.op_name == trace.operator_names.index(_FROM_HOST)):
        found[int(sizes[written_by(trace, operator)].sum())] += 1
    return found


def computation_of(trace: StepTrace) -> StepTrace:
    """The trace with its collectives costing nothing on the device itself."""
    fixed, growing = trace.op_bytes_fixed.copy(), trace.op_bytes_per_sample.copy()
    for operator, _ in _calls(trace):
        fixed[operator] = growing[operator] = 0.0
    return replace(trace, op_bytes_fixed=fixed, op_bytes_per_sample=growing)


def without_weights(trace: StepTrace) -> StepTrace:
    """Of a backward that is split the first half: what computes the weights' gradients costs nothing."""
    marks = np.flatnonzero((trace.kind == Kind.MARK) & (trace.subject == int(Mark.WEIGHTS)))
    if not len(marks):
        return trace
    behind = np.arange(len(trace.kind)) > marks[0]
    later = trace.subject[behind & (trace.kind == Kind.OPERATOR)]
    kept = ~np.isin(np.arange(len(trace.op_name)), later)
    return replace(
        trace,
        op_flops_fixed=trace.op_flops_fixed * kept,
        op_flops_per_sample=trace.op_flops_per_sample * kept,
        op_bytes_fixed=trace.op_bytes_fixed * kept,
        op_bytes_per_sample=trace.op_bytes_per_sample * kept,
    )


def _calls(trace: StepTrace) -> Iterator[tuple[int, CollectiveKind]]:
    for index, name in enumerate(trace.operator_names):
        kind = _COLLECTIVES.get(name)
        if kind is not None:
            yield from ((int(operator), kind) for operator in np.flatnonzero(trace.op_name == index))
