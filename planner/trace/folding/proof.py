"""Proof that the inner units of a fold are alike but for a shift by one unit, so that one may be copied."""

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.trace.events import IntArray, Kind, StepTrace
from gpu_plan.planner.trace.folding.layout import NO_UNIT, TEMPLATE, FoldLayout, executed_units, module_prefixes
from gpu_plan.planner.trace.folding.units import CannotFoldError, Fold

WORK = (
    "op_name",
    "op_phase",
    "op_flops_fixed",
    "op_flops_per_sample",
    "op_bytes_fixed",
    "op_bytes_per_sample",
)
"""What two units' operators must have in common."""


def prove_alike(trace: StepTrace, fold: Fold, layout: FoldLayout) -> None:
    """The second and third executed unit must be the same but for a shift by one unit."""
    rows = [_encoded(trace, fold, layout, unit) for unit in (1, TEMPLATE)]
    if len(rows[0]) != len(rows[1]) or not np.array_equal(rows[0], rows[1]):
        raise CannotFoldError("neighbouring blocks differ in what they allocate or free")
    for attribute in ("bytes_fixed", "bytes_per_sample", "category", "tensor_operator"):
        values = getattr(trace, attribute)
        if not np.array_equal(values[layout.slots[1]], values[layout.slots[TEMPLATE]]):
            raise CannotFoldError("neighbouring blocks differ in size")
    ours, theirs = (operators_of(trace, layout, unit) for unit in (1, TEMPLATE))
    for attribute in WORK:
        values = getattr(trace, attribute)
        if not np.array_equal(values[ours], values[theirs]):
            raise CannotFoldError("neighbouring blocks differ in work")
    read = references_of(trace, "op_reads_at", "op_reads", operators_of(trace, layout, NO_UNIT))
    owner = layout.unit_of_tensor[read[read >= 0]]
    if np.any((owner == 1) | (owner == TEMPLATE)):
        raise CannotFoldError("something outside the blocks reads their tensors")


def operators_of(trace: StepTrace, layout: FoldLayout, unit: int) -> IntArray:
    """Operators of one unit in order of launch."""
    found: IntArray = trace.subject[(trace.kind == Kind.OPERATOR) & (layout.unit_of_event == unit)]
    return found


def references_of(trace: StepTrace, at_name: str, name: str, operators: IntArray) -> IntArray:
    """What `operators` read or write, one after the other."""
    at, values = getattr(trace, at_name), getattr(trace, name)
    picked: list[IntArray] = [values[at[op] : at[op + 1]] for op in operators]
    return np.concatenate(picked) if picked else values[:0]


def same_for_all(trace: StepTrace, layout: FoldLayout, at_name: str, name: str) -> NDArray[np.bool_]:
    """Per reference of a unit's operators: whether all units mean one tensor (a gradient that blocks add to).

    The others must be alike but for a shift by one unit.
    """
    one, two = (references_of(trace, at_name, name, operators_of(trace, layout, unit)) for unit in (1, TEMPLATE))
    if len(one) != len(two):
        raise CannotFoldError("neighbouring blocks differ in what they read")
    distances = [np.where(ids >= 0, layout.unit_of_tensor[ids], NO_UNIT) for ids in (one, two)]
    owned = (distances[0] != NO_UNIT) & (distances[1] != NO_UNIT)
    slots = [layout.slot_of_tensor[ids] for ids in (one, two)]
    shifted = owned & (distances[0] + 1 == distances[1]) & (slots[0] == slots[1])
    if np.any(~shifted & (one != two)):
        raise CannotFoldError("neighbouring blocks differ in what they read")
    same: NDArray[np.bool_] = ~shifted
    return same


def _encoded(trace: StepTrace, fold: Fold, layout: FoldLayout, unit: int) -> IntArray:
    """Events of one unit with references made relative: rows of (kind, distance, subject)."""
    at = np.flatnonzero(layout.unit_of_event == unit)
    kind, subject = trace.kind[at], trace.subject[at]
    distance = np.zeros(len(at), dtype=np.int64)
    relative = subject.copy()
    tensors = (kind == Kind.ALLOC) | (kind == Kind.FREE)
    owner = layout.unit_of_tensor[subject[tensors]]
    owned = owner != NO_UNIT
    distance[tensors] = np.where(owned, owner - unit, 99)
    relative[tensors] = np.where(owned, layout.slot_of_tensor[subject[tensors]], subject[tensors])
    relative[kind == Kind.OPERATOR] = trace.op_name[subject[kind == Kind.OPERATOR]]
    modules = (kind >= Kind.ENTER) & (kind <= Kind.BACKWARD_EXIT)
    names = _relative_modules(trace, fold, unit)
    relative[modules] = [names.get(int(m), -1 - int(m)) for m in subject[modules]]
    params = kind == Kind.GRADIENT
    positions = _relative_parameters(trace, fold, unit)
    relative[params] = [positions.get(int(p), -1 - int(p)) for p in subject[params]]
    return np.stack([kind, distance, relative], axis=1)


def _block_members(names: list[str], fold: Fold, unit: int) -> list[int]:
    """Indices of names inside a unit's blocks, block by block in order of the list."""
    members = []
    for prefix in module_prefixes(fold, unit):
        dotted = prefix + "."
        members += [i for i, name in enumerate(names) if name == prefix or name.startswith(dotted)]
    return members


def _relative_modules(trace: StepTrace, fold: Fold, executed: int) -> dict[int, int]:
    unit = executed_units(fold)[executed]
    return {index: position for position, index in enumerate(_block_members(trace.modules, fold, unit))}


def _relative_parameters(trace: StepTrace, fold: Fold, executed: int) -> dict[int, int]:
    unit = executed_units(fold)[executed]
    names = [parameter.name for parameter in trace.parameters]
    return {index: position for position, index in enumerate(_block_members(names, fold, unit))}
