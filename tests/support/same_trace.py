"""Compares two traces of one step event by event, whatever numbers their storages and operators carry."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_plan.planner.trace.events import Kind, StepTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Storages in order of their allocation and operators in order of launch: indices into the trace's arrays."""

    tensors: np.ndarray[Any, Any]
    operators: np.ndarray[Any, Any]

    @classmethod
    def of(cls, trace: StepTrace) -> "Numbering":
        return cls(
            tensors=trace.subject[trace.kind == Kind.ALLOC],
            operators=trace.subject[trace.kind == Kind.OPERATOR],
        )

    def tensor_places(self, trace: StepTrace) -> np.ndarray[Any, Any]:
        """Place in allocation order by tensor id; the last entry answers id -1, which is no storage of the step."""
        places = np.full(trace.num_tensors + 1, -1, dtype=np.int64)
        places[self.tensors] = np.arange(len(self.tensors))
        return places


def stream(trace: StepTrace) -> list[tuple[int, int]]:
    """Events as (kind, subject) under the canonical numbering.

    Frees that follow each other are sorted: nothing can tell their order, and containers drop theirs in one that
    depends on how many they hold.
    """
    numbering = Numbering.of(trace)
    tensors = numbering.tensor_places(trace)
    operators = np.zeros(len(trace.op_name), dtype=np.int64)
    operators[numbering.operators] = np.arange(len(numbering.operators))
    events: list[tuple[int, int]] = []
    frees: list[tuple[int, int]] = []
    for kind, subject in zip(trace.kind.tolist(), trace.subject.tolist(), strict=True):
        if kind == Kind.FREE:
            frees.append((kind, int(tensors[subject])))
            continue
        events += sorted(frees)
        frees = []
        if kind == Kind.ALLOC:
            subject = int(tensors[subject])
        elif kind == Kind.OPERATOR:
            subject = int(operators[subject])
        events.append((kind, subject))
    return events + sorted(frees)


def tensor_table(trace: StepTrace) -> dict[str, list[Any]]:
    """Every column of the storages, in order of allocation."""
    order = Numbering.of(trace).tensors
    columns = ("bytes_fixed", "bytes_per_sample", "category", "tensor_module", "tensor_operator", "tensor_parameter")
    table: dict[str, list[Any]] = {name: getattr(trace, name)[order].tolist() for name in columns}
    table["tensor_shape"] = [trace.tensor_shape[tensor] for tensor in order]
    return table


def operator_table(trace: StepTrace) -> dict[str, list[Any]]:
    """Every column of the operators, in order of launch; reads and writes under the canonical numbering."""
    numbering = Numbering.of(trace)
    places = numbering.tensor_places(trace)
    columns = (
        "op_name",
        "op_module",
        "op_phase",
        "op_flops_fixed",
        "op_flops_per_sample",
        "op_bytes_fixed",
        "op_bytes_per_sample",
    )
    table: dict[str, list[Any]] = {name: getattr(trace, name)[numbering.operators].tolist() for name in columns}
    for name in ("op_reads", "op_writes"):
        at, values = getattr(trace, f"{name}_at"), getattr(trace, name)
        table[name] = [places[values[at[op] : at[op + 1]]].tolist() for op in numbering.operators]
    return table


def assert_same_trace(left: StepTrace, right: StepTrace) -> None:
    """Everything that a strategy or the speed model reads is equal on both sides."""
    for name in (
        "modules",
        "operator_names",
        "parameters",
        "buffer_bytes",
        "inputs",
        "samples",
        "tokens_per_sample",
        "layout",
        "host_reads",
    ):
        assert getattr(left, name) == getattr(right, name), name
    _same_rows("event", stream(left), stream(right), left)
    for name, table in (("tensor", tensor_table), ("operator", operator_table)):
        ours, theirs = table(left), table(right)
        for column in ours:
            _same_rows(f"{name} {column}", ours[column], theirs[column], left)


def _same_rows(what: str, ours: list[Any], theirs: list[Any], trace: StepTrace) -> None:
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        assert one == other, f"{what} {place}: {one} and {other}; {_where(what, place, trace)}"
    assert len(ours) == len(theirs), f"{what}: {len(ours)} and {len(theirs)}"


def _where(what: str, place: int, trace: StepTrace) -> str:
    numbering = Numbering.of(trace)
    if what.startswith("tensor"):
        tensor = numbering.tensors[place]
        return f"{trace.operator_names[trace.tensor_operator[tensor]]} in {trace.modules[trace.tensor_module[tensor]]}"
    if what.startswith("operator"):
        op = numbering.operators[place]
        return f"{trace.operator_names[trace.op_name[op]]} in {trace.modules[trace.op_module[op]]}"
    return f"among {trace.num_events} events"
