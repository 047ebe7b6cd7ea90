"""Undoes folding: copies one unit of a run of equal blocks as often as the model has it.

Works on arrays alone. Every event of a unit refers to storages by (unit distance, slot), so a copy is the same
row of references shifted by one unit.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.trace.events import IntArray, Kind, Mark, StepTrace
from planner.trace.folding import CannotFoldError, Fold

_NO_UNIT = -1
_EXECUTED = 4
_TEMPLATE = 2
_WORK = (
    "op_name",
    "op_phase",
    "op_flops_fixed",
    "op_flops_per_sample",
    "op_bytes_fixed",
    "op_bytes_per_sample",
)
_REFERENCES = (("op_reads_at", "op_reads"), ("op_writes_at", "op_writes"))


@dataclass(slots=True, kw_only=True)
class _Layout:
    """Where the four executed units of one fold lie in a trace."""

    unit_of_event: IntArray
    unit_of_tensor: IntArray
    slot_of_tensor: IntArray
    slots: list[IntArray]
    """Tensor ids by slot, for each executed unit."""


def expand(trace: StepTrace, fold: Fold) -> StepTrace:
    """The trace of the whole model from one in which `fold` left blocks out.

    Raises CannotFoldError when the two inner units differ, or when something outside keeps only some of them.
    """
    copies = fold.units - _EXECUTED
    layout = _layout(trace, fold)
    _prove_alike(trace, fold, layout)
    return _Expansion(trace, fold, layout, copies).result()


def _module_prefixes(fold: Fold, unit: int) -> tuple[str, ...]:
    return tuple(f"{fold.list_name}.{index}" for index in fold.blocks(unit))


def executed_units(fold: Fold) -> tuple[int, int, int, int]:
    """Which units of the run were executed."""
    return (0, 1, fold.units - 2, fold.units - 1)


def _layout(trace: StepTrace, fold: Fold) -> _Layout:
    index_of = {name: position for position, name in enumerate(trace.modules)}
    backward_at = trace.mark_position(Mark.BACKWARD)
    unit_of_event = np.full(trace.num_events, _NO_UNIT, dtype=np.int64)
    forward_starts, forward_end = [], 0
    backward_starts, backward_end = [], 0
    for unit in executed_units(fold):
        names = _module_prefixes(fold, unit)
        if any(name not in index_of for name in names):
            raise CannotFoldError("blocks share modules")
        blocks = [index_of[name] for name in names]
        entered = np.flatnonzero((trace.kind == Kind.ENTER) & (trace.subject == blocks[0]))
        left = np.flatnonzero((trace.kind == Kind.EXIT) & (trace.subject == blocks[-1]))
        returned = np.flatnonzero((trace.kind == Kind.BACKWARD_ENTER) & (trace.subject == blocks[-1]))
        done = np.flatnonzero((trace.kind == Kind.BACKWARD_EXIT) & (trace.subject == blocks[0]))
        if not (len(entered) and len(left) and len(returned) and len(done)) or entered[0] > backward_at:
            raise CannotFoldError("a block does not run in both directions")
        if np.count_nonzero(entered < backward_at) != 1:
            raise CannotFoldError("a block runs more than once")
        forward_starts.append(int(entered[0]))
        backward_starts.append(int(returned[0]))
        forward_end = _after_frees(trace, int(left[left < backward_at][-1]) + 1)
        if unit == 0:
            backward_end = _after_frees(trace, int(done[-1]) + 1)
    for unit, begin in enumerate(forward_starts):
        end = forward_starts[unit + 1] if unit + 1 < _EXECUTED else forward_end
        unit_of_event[begin:end] = unit
    for unit, begin in enumerate(backward_starts):
        end = backward_starts[unit - 1] if unit > 0 else backward_end
        unit_of_event[begin:end] = unit
    unit_of_tensor = np.full(trace.num_tensors, _NO_UNIT, dtype=np.int64)
    slot_of_tensor = np.zeros(trace.num_tensors, dtype=np.int64)
    slots = []
    allocs = trace.kind == Kind.ALLOC
    for unit in range(_EXECUTED):
        made = trace.subject[allocs & (unit_of_event == unit)]
        unit_of_tensor[made] = unit
        slot_of_tensor[made] = np.arange(len(made))
        slots.append(made)
    return _Layout(
        unit_of_event=unit_of_event, unit_of_tensor=unit_of_tensor, slot_of_tensor=slot_of_tensor, slots=slots
    )


def _after_frees(trace: StepTrace, position: int) -> int:
    """What a block's caller drops right after it belongs to the block."""
    while position < trace.num_events and trace.kind[position] == Kind.FREE:
        position += 1
    return position


def _prove_alike(trace: StepTrace, fold: Fold, layout: _Layout) -> None:
    """The second and third executed unit must be the same but for a shift by one unit."""
    rows = [_encoded(trace, fold, layout, unit) for unit in (1, _TEMPLATE)]
    if len(rows[0]) != len(rows[1]) or not np.array_equal(rows[0], rows[1]):
        raise CannotFoldError("neighbouring blocks differ in what they allocate or free")
    for attribute in ("bytes_fixed", "bytes_per_sample", "category", "tensor_operator"):
        values = getattr(trace, attribute)
        if not np.array_equal(values[layout.slots[1]], values[layout.slots[_TEMPLATE]]):
            raise CannotFoldError("neighbouring blocks differ in size")
    ours, theirs = (_operators(trace, layout, unit) for unit in (1, _TEMPLATE))
    for attribute in _WORK:
        values = getattr(trace, attribute)
        if not np.array_equal(values[ours], values[theirs]):
            raise CannotFoldError("neighbouring blocks differ in work")
    read = _references(trace, "op_reads_at", "op_reads", _operators(trace, layout, _NO_UNIT))
    owner = layout.unit_of_tensor[read[read >= 0]]
    if np.any((owner == 1) | (owner == _TEMPLATE)):
        raise CannotFoldError("something outside the blocks reads their tensors")


def _operators(trace: StepTrace, layout: _Layout, unit: int) -> IntArray:
    """Operators of one unit in order of launch."""
    return trace.subject[(trace.kind == Kind.OPERATOR) & (layout.unit_of_event == unit)]


def _references(trace: StepTrace, at_name: str, name: str, operators: IntArray) -> IntArray:
    """What `operators` read or write, one after the other."""
    at, values = getattr(trace, at_name), getattr(trace, name)
    picked: list[IntArray] = [values[at[op] : at[op + 1]] for op in operators]
    return np.concatenate(picked) if picked else values[:0]


def _same_for_all(trace: StepTrace, layout: _Layout, at_name: str, name: str) -> NDArray[np.bool_]:
    """Per reference of a unit's operators: whether all units mean one tensor (a gradient that blocks add to).

    The others must be alike but for a shift by one unit.
    """
    one, two = (_references(trace, at_name, name, _operators(trace, layout, unit)) for unit in (1, _TEMPLATE))
    if len(one) != len(two):
        raise CannotFoldError("neighbouring blocks differ in what they read")
    distances = [np.where(ids >= 0, layout.unit_of_tensor[ids], _NO_UNIT) for ids in (one, two)]
    owned = (distances[0] != _NO_UNIT) & (distances[1] != _NO_UNIT)
    slots = [layout.slot_of_tensor[ids] for ids in (one, two)]
    shifted = owned & (distances[0] + 1 == distances[1]) & (slots[0] == slots[1])
    if np.any(~shifted & (one != two)):
        raise CannotFoldError("neighbouring blocks differ in what they read")
    return ~shifted


def _encoded(trace: StepTrace, fold: Fold, layout: _Layout, unit: int) -> IntArray:
    """Events of one unit with references made relative: rows of (kind, distance, subject)."""
    at = np.flatnonzero(layout.unit_of_event == unit)
    kind, subject = trace.kind[at], trace.subject[at]
    distance = np.zeros(len(at), dtype=np.int64)
    relative = subject.copy()
    tensors = (kind == Kind.ALLOC) | (kind == Kind.FREE)
    owner = layout.unit_of_tensor[subject[tensors]]
    owned = owner != _NO_UNIT
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
    for prefix in _module_prefixes(fold, unit):
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


class _Expansion:
    """Builds the expanded arrays of one fold."""

    def __init__(self, trace: StepTrace, fold: Fold, layout: _Layout, copies: int) -> None:
        self._trace = trace
        self._fold = fold
        self._layout = layout
        self._copies = copies
        self._place = np.array([0, 1, 2 + copies, 3 + copies])
        """Position of each executed unit among all units."""
        self._tensors = self._tensor_table()
        self._modules = self._name_table(trace.modules)
        self._parameters = self._name_table([parameter.name for parameter in trace.parameters])

    def _tensor_table(self) -> IntArray:
        """Tensor id by (unit position, slot)."""
        slots = self._layout.slots
        table = np.full((4 + self._copies, max(len(row) for row in slots)), -1, dtype=np.int64)
        for executed, place in enumerate(self._place):
            table[place, : len(slots[executed])] = slots[executed]
        width = len(slots[_TEMPLATE])
        fresh = self._trace.num_tensors + np.arange(self._copies * width).reshape(self._copies, width)
        table[2 : 2 + self._copies, :width] = fresh
        return table

    def _name_table(self, names: list[str]) -> IntArray:
        """Module or parameter index by (unit position, place inside the unit)."""
        by_block: dict[str, list[int]] = {}
        prefix = self._fold.list_name + "."
        for index, name in enumerate(names):
            if name.startswith(prefix):
                block = name[len(prefix) :].partition(".")[0]
                by_block.setdefault(block, []).append(index)
        rows = [
            [index for block in self._fold.blocks(unit) for index in by_block.get(str(block), [])]
            for unit in range(self._fold.units)
        ]
        return np.asarray(rows, dtype=np.int64)

    def _shift_tensors(
        self, ids: IntArray, executed: int, places: IntArray, same: NDArray[np.bool_] | None = None
    ) -> IntArray:
        """References of an executed unit's events as seen from other unit positions: [places, ids].

        Those in `same` stay as they are; so do those from one end of the run to the other.
        """
        owner = np.where(ids >= 0, self._layout.unit_of_tensor[ids], _NO_UNIT)
        distance = np.abs(owner - executed)
        owned = (owner != _NO_UNIT) & (distance < _EXECUTED - 1)
        if same is not None:
            owned &= ~same
        if np.any(owned & (distance > 1)):
            raise CannotFoldError("a block keeps or frees tensors of one that is not its neighbour")
        row = places[:, None] + np.where(owned, owner - executed, 0)[None, :]
        row = np.clip(row, 0, self._tensors.shape[0] - 1)
        shifted = self._tensors[row, np.where(owned, self._layout.slot_of_tensor[ids], 0)[None, :]]
        return np.where(owned[None, :], shifted, ids[None, :])

    def _shift_names(self, ids: IntArray, executed: int, places: IntArray, table: IntArray) -> IntArray:
        """The same for module or parameter indices; those outside the unit stay as they are."""
        column = np.full(int(table.max(initial=0)) + 1, -1, dtype=np.int64)
        column[table[self._place[executed]]] = np.arange(table.shape[1])
        known = (ids >= 0) & (ids < len(column))
        inside = np.where(known, column[np.where(known, ids, 0)], -1)
        shifted = table[places[:, None], np.maximum(inside, 0)[None, :]]
        return np.where((inside >= 0)[None, :], shifted, ids[None, :])

    def _events(self, at: IntArray, executed: int, places: IntArray, op_base: IntArray) -> IntArray:
        """Subjects of the events `at` of an executed unit for copies at `places`: [places, events]."""
        kind, subject = self._trace.kind[at], self._trace.subject[at]
        out = np.broadcast_to(subject, (len(places), len(at))).copy()
        tensors = (kind == Kind.ALLOC) | (kind == Kind.FREE)
        out[:, tensors] = self._shift_tensors(subject[tensors], executed, places)
        modules = (kind >= Kind.ENTER) & (kind <= Kind.BACKWARD_EXIT)
        out[:, modules] = self._shift_names(subject[modules], executed, places, self._modules)
        params = kind == Kind.GRADIENT
        out[:, params] = self._shift_names(subject[params], executed, places, self._parameters)
        operators = np.flatnonzero(kind == Kind.OPERATOR)
        if len(op_base):
            order = np.searchsorted(self._template_operators(), subject[operators])
            out[:, operators] = op_base[:, None] + order[None, :]
        return out

    def _template_operators(self) -> IntArray:
        trace = self._trace
        mask = (self._layout.unit_of_event == _TEMPLATE) & (trace.kind == Kind.OPERATOR)
        return np.sort(trace.subject[mask])

    def result(self) -> StepTrace:
        kind, subject = self._expanded_events()
        return replace(self._trace, kind=kind, subject=subject, **self._tensor_columns(), **self._operator_columns())

    def _expanded_events(self) -> tuple[IntArray, IntArray]:
        trace, layout = self._trace, self._layout
        units = layout.unit_of_event
        template_at = np.flatnonzero(units == _TEMPLATE)
        backward_at = trace.mark_position(Mark.BACKWARD)
        places = 2 + np.arange(self._copies)
        op_base = len(trace.op_name) + np.arange(self._copies) * len(self._template_operators())
        copied = self._events(template_at, _TEMPLATE, places, op_base)
        is_forward = template_at < backward_at
        kinds = trace.kind[template_at]
        subject = trace.subject.copy()
        for executed in range(_EXECUTED):
            at = np.flatnonzero(units == executed)
            subject[at] = self._events(at, executed, self._place[executed : executed + 1], np.empty(0, dtype=np.int64))[
                0
            ]
        forward_copies = copied[:, is_forward].reshape(-1)
        backward_copies = copied[::-1, ~is_forward].reshape(-1)
        forward_kinds = np.tile(kinds[is_forward], self._copies)
        backward_kinds = np.tile(kinds[~is_forward], self._copies)
        insert_forward = int(np.flatnonzero(units == _TEMPLATE)[0])
        # In backward the template unit runs before its copies, which run before unit 1.
        insert_backward = int(template_at[~is_forward][-1]) + 1
        pieces = [
            (trace.kind[:insert_forward], subject[:insert_forward]),
            (forward_kinds, forward_copies),
            (trace.kind[insert_forward:insert_backward], subject[insert_forward:insert_backward]),
            (backward_kinds, backward_copies),
            (trace.kind[insert_backward:], subject[insert_backward:]),
        ]
        kind = np.concatenate([piece[0] for piece in pieces])
        flat = np.concatenate([piece[1] for piece in pieces])
        return self._with_outside_frees(kind, flat)

    def _with_outside_frees(self, kind: IntArray, subject: IntArray) -> tuple[IntArray, IntArray]:
        """Storages of every unit that something outside frees: the copies' go with the template's."""
        trace, layout = self._trace, self._layout
        outside = (layout.unit_of_event == _NO_UNIT) & (trace.kind == Kind.FREE)
        freed = trace.subject[outside]
        by_unit = [set(layout.slot_of_tensor[freed[layout.unit_of_tensor[freed] == unit]]) for unit in (1, 2)]
        if by_unit[0] != by_unit[1]:
            raise CannotFoldError("something outside the blocks keeps some of their tensors")
        if not by_unit[1]:
            return kind, subject
        counts = np.ones(len(kind), dtype=np.int64)
        template = self._layout.slots[_TEMPLATE]
        slots = sorted(by_unit[1])
        hit = (kind == Kind.FREE) & np.isin(subject, template[slots])
        counts[hit] += self._copies
        new_kind, new_subject = np.repeat(kind, counts), np.repeat(subject, counts)
        starts = np.cumsum(counts) - counts
        for position in np.flatnonzero(hit):
            slot = int(layout.slot_of_tensor[subject[position]])
            first = int(starts[position])
            new_subject[first : first + self._copies] = self._tensors[2 : 2 + self._copies, slot]
        return new_kind, new_subject

    def _tensor_columns(self) -> dict[str, Any]:
        trace = self._trace
        template = self._layout.slots[_TEMPLATE]
        places = 2 + np.arange(self._copies)

        def tiled(values: IntArray) -> IntArray:
            return np.concatenate([values, np.tile(values[template], self._copies)])

        modules = self._shift_names(trace.tensor_module[template], _TEMPLATE, places, self._modules)
        params = self._shift_names(trace.tensor_parameter[template], _TEMPLATE, places, self._parameters)
        return {
            "bytes_fixed": tiled(trace.bytes_fixed),
            "bytes_per_sample": tiled(trace.bytes_per_sample),
            "category": tiled(trace.category),
            "tensor_operator": tiled(trace.tensor_operator),
            "tensor_module": np.concatenate([trace.tensor_module, modules.reshape(-1)]),
            "tensor_parameter": np.concatenate([trace.tensor_parameter, params.reshape(-1)]),
            "tensor_shape": trace.tensor_shape + [trace.tensor_shape[t] for t in template] * self._copies,
        }

    def _operator_columns(self) -> dict[str, Any]:
        trace = self._trace
        template = self._template_operators()
        places = 2 + np.arange(self._copies)
        columns: dict[str, Any] = {}
        for name in _WORK:
            values = getattr(trace, name)
            columns[name] = np.concatenate([values, np.tile(values[template], self._copies)])
        modules = self._shift_names(trace.op_module[template], _TEMPLATE, places, self._modules)
        columns["op_module"] = np.concatenate([trace.op_module, modules.reshape(-1)])
        for at_name, name in _REFERENCES:
            at, values = getattr(trace, at_name), getattr(trace, name)
            lengths = at[template + 1] - at[template]
            same = _same_for_all(trace, self._layout, at_name, name)
            picked = _references(trace, at_name, name, template)
            shifted = self._shift_tensors(picked, _TEMPLATE, places, same)
            ends = at[-1] + np.cumsum(np.tile(lengths, self._copies))
            columns[at_name] = np.concatenate([at, ends])
            columns[name] = np.concatenate([self._real_refs(at, values, same), shifted.reshape(-1)])
        return columns

    def _real_refs(self, at: IntArray, values: IntArray, same: NDArray[np.bool_]) -> IntArray:
        """References of the executed units' operators, with the neighbours they have after insertion."""
        out = values.copy()
        for executed in range(_EXECUTED):
            operators = _operators(self._trace, self._layout, executed)
            places = np.concatenate([np.arange(at[op], at[op + 1]) for op in operators] or [at[:0]])
            kept = same if executed in (1, _TEMPLATE) else None
            out[places] = self._shift_tensors(values[places], executed, self._place[executed : executed + 1], kept)[0]
        return out
