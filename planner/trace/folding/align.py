"""Slots of the first and the last executed unit, numbered as their inner neighbours see them.

The ends of a run may allocate more or less than the inner units (the last decoder block begins the gradient to
which the others add), so what a neighbour refers to is found by what it does, not by counting allocations.
"""

from dataclasses import replace

import numpy as np

from gpu_plan.planner.trace.events import IntArray, Kind, StepTrace
from gpu_plan.planner.trace.folding.layout import EXECUTED, TEMPLATE, FoldLayout
from gpu_plan.planner.trace.folding.units import CannotFoldError


def align_ends(trace: StepTrace, layout: FoldLayout) -> FoldLayout:
    """`layout` with the end units' slots numbered like those of the inner units; holes are -1.

    Raises CannotFoldError where the inner units do not refer to their neighbours in the same way.
    """
    ours, theirs = (_all_references(trace, layout, unit) for unit in (1, TEMPLATE))
    if len(ours) != len(theirs):
        raise CannotFoldError("neighbouring blocks differ in what they allocate or free")
    slot_of_tensor = layout.slot_of_tensor.copy()
    slots = list(layout.slots)
    last = EXECUTED - 1
    # The template's view of the last unit is unit 1's of the template; unit 1's of the first is the template's of it.
    for end, seen, inner, named in ((last, theirs, TEMPLATE, ours), (0, ours, 1, theirs)):
        slots[end] = _renumbered(layout, slot_of_tensor, end, _pairs(layout, seen, end, named, inner))
    return replace(layout, slot_of_tensor=slot_of_tensor, slots=slots)


def _all_references(trace: StepTrace, layout: FoldLayout, unit: int) -> IntArray:
    """Storages named by a unit's frees and operators, in order; -1 for none of the step's."""
    at = np.flatnonzero(layout.unit_of_event == unit)
    kind, subject = trace.kind[at], trace.subject[at]
    parts: list[IntArray] = [subject[kind == Kind.FREE]]
    for operator in subject[kind == Kind.OPERATOR]:
        for offsets, values in ((trace.op_reads_at, trace.op_reads), (trace.op_writes_at, trace.op_writes)):
            parts.append(values[offsets[operator] : offsets[operator + 1]])
    return np.concatenate(parts)


def _pairs(layout: FoldLayout, seen: IntArray, end: int, named: IntArray, inner: int) -> dict[int, int]:
    """Tensor of the end unit -> slot under which the inner units know it."""
    found: dict[int, int] = {}
    both = (seen >= 0) & (named >= 0)
    both &= (layout.unit_of_tensor[seen] == end) & (layout.unit_of_tensor[named] == inner)
    for tensor, name in zip(seen[both].tolist(), named[both].tolist(), strict=True):
        slot = int(layout.slot_of_tensor[name])
        if found.setdefault(tensor, slot) != slot:
            raise CannotFoldError("neighbouring blocks differ in what they read")
    if len(set(found.values())) != len(found):
        raise CannotFoldError("neighbouring blocks differ in what they read")
    return found


def _renumbered(layout: FoldLayout, slot_of_tensor: IntArray, end: int, pairs: dict[int, int]) -> IntArray:
    """Tensor ids of the end unit by new slot; those no neighbour refers to come after all others."""
    tensors = layout.slots[end]
    beyond = max(len(row) for row in layout.slots)
    table = np.full(beyond + len(tensors), -1, dtype=np.int64)
    for position, tensor in enumerate(tensors.tolist()):
        slot = pairs.get(tensor, beyond + position)
        slot_of_tensor[tensor] = slot
        table[slot] = tensor
    return table
