"""A traced generation cut into its forward passes, and a whole generation put together from such cuts.

Arrays alone: nothing here imports torch.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_plan.planner.trace.events import IntArray, Kind, StepTrace

_ROOT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Some consecutive passes of a traced generation."""

    trace: StepTrace
    first: int
    """Index of the first event."""
    end: int
    """Index behind the last event."""
    incoming: IntArray
    """Storages alive before the first event, in the order in which they were made."""
    passes: tuple[int, int | None] = (0, None)
    """First and last pass; None for all that follows."""


def starts_of(trace: StepTrace) -> IntArray:
    """Where each pass begins: the first with the call of `generate`, the others as the whole model is entered."""
    entered = np.flatnonzero((trace.kind == Kind.ENTER) & (trace.subject == _ROOT))
    starts = entered.copy()
    starts[0] = 0
    return starts


def cut(trace: StepTrace, first: int, last: int | None = None) -> Cut:
    """Passes `first` to `last` of a trace, the last one with all that follows when None."""
    starts = starts_of(trace)
    begin = int(starts[first])
    end = trace.num_events if last is None or last + 1 >= len(starts) else int(starts[last + 1])
    made = (trace.kind[:begin] == Kind.ALLOC, trace.kind[:begin] == Kind.FREE)
    subjects = trace.subject[:begin]
    gone = set(subjects[made[1]].tolist())
    incoming = [tensor for tensor in subjects[made[0]].tolist() if tensor not in gone]
    return Cut(trace=trace, first=begin, end=end, incoming=np.asarray(incoming, dtype=np.int64), passes=(first, last))


def joined(left: StepTrace, right: StepTrace) -> StepTrace:
    """Both traces' storages and operators in one table, left's first; events are left's, then right's."""
    if left is right:
        return left
    names = sorted({*left.operator_names, *right.operator_names})
    place = {name: position for position, name in enumerate(names)}
    maps = [np.asarray([place[name] for name in trace.operator_names], dtype=np.int64) for trace in (left, right)]
    tensors, operators = left.num_tensors, len(left.op_name)
    shift = np.where(
        (right.kind == Kind.ALLOC) | (right.kind == Kind.FREE),
        tensors,
        np.where(right.kind == Kind.OPERATOR, operators, 0),
    )
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(left, name), getattr(right, name)])
        for name in (
            "bytes_fixed", "bytes_per_sample", "category", "tensor_module", "tensor_parameter", "op_module", "op_phase",
            "op_flops_fixed", "op_flops_per_sample", "op_bytes_fixed", "op_bytes_per_sample",
        )
    }  # fmt: skip
    return replace(
        left,
        kind=np.concatenate([left.kind, right.kind]),
        subject=np.concatenate([left.subject, right.subject + shift]),
        tensor_operator=np.concatenate([maps[0][left.tensor_operator], maps[1][right.tensor_operator]]),
        op_name=np.concatenate([maps[0][left.op_name], maps[1][right.op_name]]),
        operator_names=names,
        tensor_shape=[*left.tensor_shape, *right.tensor_shape],
        op_reads_at=np.concatenate([left.op_reads_at, right.op_reads_at[1:] + left.op_reads_at[-1]]),
        op_reads=np.concatenate([left.op_reads, np.where(right.op_reads >= 0, right.op_reads + tensors, -1)]),
        op_writes_at=np.concatenate([left.op_writes_at, right.op_writes_at[1:] + left.op_writes_at[-1]]),
        op_writes=np.concatenate([left.op_writes, np.where(right.op_writes >= 0, right.op_writes + tensors, -1)]),
        host_reads=list(dict.fromkeys([*left.host_reads, *right.host_reads])),
        notes=list(dict.fromkeys([*left.notes, *right.notes])),
        **columns,
    )


def rows_of(at: IntArray, values: IntArray, chosen: IntArray) -> tuple[IntArray, IntArray]:
    """Rows `chosen` of a ragged table, one after the other: offsets and values."""
    lengths = at[chosen + 1] - at[chosen]
    offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(at[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return offsets, values[places]


def operators_of(part: Cut) -> StepTrace:
    """The cut's operators alone, as a trace that a speed model reads; storages keep their numbers."""
    trace = part.trace
    events = slice(part.first, part.end)
    chosen = trace.subject[events][trace.kind[events] == Kind.OPERATOR]
    columns: dict[str, Any] = {
        name: getattr(trace, name)[chosen]
        for name in (
            "op_name", "op_module", "op_phase", "op_flops_fixed", "op_flops_per_sample", "op_bytes_fixed",
            "op_bytes_per_sample",
        )
    }  # fmt: skip
    for at_name, name in (("op_reads_at", "op_reads"), ("op_writes_at", "op_writes")):
        columns[at_name], columns[name] = rows_of(getattr(trace, at_name), getattr(trace, name), chosen)
    return replace(trace, **columns)
