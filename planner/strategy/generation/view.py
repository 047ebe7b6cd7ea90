"""What one device sees of a generation whose modules stand on several, as accelerate's hooks run it.

accelerate hooks.py: AlignDevicesHook moves a module's inputs to the device on which it runs, and copies weights that
are kept elsewhere there for the module's forward alone. Arrays alone: nothing here imports torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, IntArray, Kind, StepTrace
from gpu_plan.planner.trace.generation.passes import rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Homes:
    """Where modules run and where their weights stand."""

    runs_on: IntArray
    """Device index of each of the trace's modules."""
    copied: Mapping[int, int]
    """Module to the bytes of its own weights that are copied in before it runs."""


def unit_of(name: str, units: Mapping[str, object]) -> str | None:
    """The unit of a device map that holds a module or parameter: the longest that is a prefix of it."""
    while name and name not in units:
        name = name.rpartition(".")[0]
    return name if name in units else "" if "" in units else None


def homes(trace: StepTrace, runs_on: Mapping[str, int], away: Mapping[str, int]) -> Homes:
    """`runs_on`: device index by unit; modules above the units run on device 0. `away`: bytes by parameter name."""
    placed = [unit_of(name, runs_on) for name in trace.modules]
    copied: dict[int, int] = {}
    index = {name: position for position, name in enumerate(trace.modules)}
    for name, nbytes in away.items():
        owner = index.get(name.rpartition(".")[0])
        if owner is not None:
            copied[owner] = copied.get(owner, 0) + nbytes
    main = min(runs_on.values(), default=0)
    return Homes(
        runs_on=np.asarray([main if unit is None else runs_on[unit] for unit in placed], dtype=np.int64), copied=copied
    )


def seen_by(trace: StepTrace, where: Homes, device: int) -> StepTrace:
    """The trace with the storages of one device alone: its own, copies of others' that it reads, weights copied in."""
    operator_at, operators = _operators(trace)
    runs_here = where.runs_on[trace.op_module] == device
    owner = where.runs_on[trace.tensor_module]
    first, last = _reads_by(trace, operators, operator_at, runs_here)
    foreign = np.flatnonzero((owner != device) & (first >= 0))
    storage = (trace.kind == Kind.ALLOC) | (trace.kind == Kind.FREE)
    kept = ~storage
    kept[storage] = owner[trace.subject[storage]] == device
    keys = [2 * np.flatnonzero(kept)]
    kinds, subjects = [trace.kind[kept]], [trace.subject[kept]]
    for kind, at, shift in ((Kind.ALLOC, first, -1), (Kind.FREE, last, 1)):
        keys.append(2 * at[foreign] + shift)
        kinds.append(np.full(len(foreign), int(kind)))
        subjects.append(foreign)
    extra = _copies(trace, where, device, keys, kinds, subjects)
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")
    return replace(
        _with_tensors(trace, extra), kind=np.concatenate(kinds)[order], subject=np.concatenate(subjects)[order]
    )


def _operators(trace: StepTrace) -> tuple[IntArray, IntArray]:
    """Position and operator of every launch."""
    at = np.flatnonzero(trace.kind == Kind.OPERATOR)
    return at, trace.subject[at]


def _reads_by(
    trace: StepTrace, operators: IntArray, positions: IntArray, runs_here: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[IntArray, IntArray]:
    """First and last event at which an operator of the device reads each storage; -1 for none."""
    here = runs_here[operators]
    at, tensors = rows_of(trace.op_reads_at, trace.op_reads, operators[here])
    events = np.repeat(positions[here], np.diff(at))
    known = tensors >= 0
    tensors, events = tensors[known], events[known]
    first = np.full(trace.num_tensors, -1, dtype=np.int64)
    last = np.full(trace.num_tensors, -1, dtype=np.int64)
    first[tensors[::-1]] = events[::-1]  # events ascend: the last write is the first read
    last[tensors] = events
    return first, last


def _copies(
    trace: StepTrace,
    where: Homes,
    device: int,
    keys: list[IntArray],
    kinds: list[IntArray],
    subjects: list[IntArray],
) -> list[tuple[int, int]]:
    """Adds the events of weights that are copied in; gives module and bytes of the storages that stand for them."""
    extra: list[tuple[int, int]] = []
    for module, nbytes in where.copied.items():
        if where.runs_on[module] != device or not nbytes:
            continue
        tensor = trace.num_tensors + len(extra)
        extra.append((module, nbytes))
        for kind, event, shift in ((Kind.ALLOC, Kind.ENTER, 1), (Kind.FREE, Kind.EXIT, -1)):
            at = np.flatnonzero((trace.kind == event) & (trace.subject == module))
            keys.append(2 * at + shift)
            kinds.append(np.full(len(at), int(kind)))
            subjects.append(np.full(len(at), tensor))
    return extra


def _with_tensors(trace: StepTrace, extra: Sequence[tuple[int, int]]) -> StepTrace:
    if not extra:
        return trace
    count = len(extra)
    name = "weights copied in"
    names = [*trace.operator_names, name]

    def grown(values: IntArray, added: Sequence[int]) -> IntArray:
        return np.concatenate([values, np.asarray(added, dtype=np.int64)])

    return replace(
        trace,
        operator_names=names,
        bytes_fixed=grown(trace.bytes_fixed, [nbytes for _, nbytes in extra]),
        bytes_per_sample=grown(trace.bytes_per_sample, [0] * count),
        category=grown(trace.category, [CATEGORY_INDEX[Category.TEMPORARY]] * count),
        tensor_module=grown(trace.tensor_module, [module for module, _ in extra]),
        tensor_operator=grown(trace.tensor_operator, [len(names) - 1] * count),
        tensor_parameter=grown(trace.tensor_parameter, [-1] * count),
        tensor_shape=[*trace.tensor_shape, *(f"[{nbytes}] uint8" for _, nbytes in extra)],
    )
