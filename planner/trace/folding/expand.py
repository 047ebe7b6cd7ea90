"""Undoes folding: copies one unit of a run of equal blocks as often as the model has it.

Works on arrays alone. Every event of a unit refers to storages by (unit distance, slot), so a copy is the same
row of references shifted by one unit.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.trace.events import IntArray, Kind, StepTrace
from gpu_plan.planner.trace.folding.align import align_ends
from gpu_plan.planner.trace.folding.layout import EXECUTED, NO_UNIT, TEMPLATE, FoldLayout, fold_layout
from gpu_plan.planner.trace.folding.proof import WORK, operators_of, prove_alike, references_of, same_for_all
from gpu_plan.planner.trace.folding.units import CannotFoldError, Fold

_REFERENCES = (("op_reads_at", "op_reads"), ("op_writes_at", "op_writes"))


def expand(trace: StepTrace, fold: Fold) -> StepTrace:
    """The trace of the whole model from one in which `fold` left blocks out.

    Raises CannotFoldError when the two inner units differ, or when something outside keeps only some of them.
    """
    copies = fold.units - EXECUTED
    layout = fold_layout(trace, fold)
    if not layout.stretches:
        return trace
    layout = align_ends(trace, layout)
    prove_alike(trace, fold, layout)
    return _Expansion(trace, fold, layout, copies).result()


class _Expansion:
    """Builds the expanded arrays of one fold."""

    def __init__(self, trace: StepTrace, fold: Fold, layout: FoldLayout, copies: int) -> None:
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
        width = len(slots[TEMPLATE])
        fresh = self._trace.num_tensors + np.arange(self._copies * width).reshape(self._copies, width)
        table[2 : 2 + self._copies, :width] = fresh
        return table

    def _name_table(self, names: list[str]) -> IntArray:
        """Module or parameter index by (unit position, place inside the unit); -1 beyond what an end has."""
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
        table = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
        for unit, row in enumerate(rows):
            table[unit, : len(row)] = row
        return table

    def _shift_tensors(
        self, ids: IntArray, executed: int, places: IntArray, same: NDArray[np.bool_] | None = None
    ) -> IntArray:
        """References of an executed unit's events as seen from other unit positions: [places, ids].

        Those in `same` stay as they are; so do those from one end of the run to the other.
        """
        owner = np.where(ids >= 0, self._layout.unit_of_tensor[ids], NO_UNIT)
        distance = np.abs(owner - executed)
        owned = (owner != NO_UNIT) & (distance < EXECUTED - 1)
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
        own = table[self._place[executed]]
        column[own[own >= 0]] = np.flatnonzero(own >= 0)
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
        mask = (self._layout.unit_of_event == TEMPLATE) & (trace.kind == Kind.OPERATOR)
        return np.sort(trace.subject[mask])

    def result(self) -> StepTrace:
        kind, subject = self._expanded_events()
        return replace(self._trace, kind=kind, subject=subject, **self._tensor_columns(), **self._operator_columns())

    def _expanded_events(self) -> tuple[IntArray, IntArray]:
        trace, layout = self._trace, self._layout
        units = layout.unit_of_event
        template_at = np.flatnonzero(units == TEMPLATE)
        places = 2 + np.arange(self._copies)
        op_base = len(trace.op_name) + np.arange(self._copies) * len(self._template_operators())
        copied = self._events(template_at, TEMPLATE, places, op_base)
        subject = trace.subject.copy()
        for executed in range(EXECUTED):
            at = np.flatnonzero(units == executed)
            subject[at] = self._events(at, executed, self._place[executed : executed + 1], np.empty(0, dtype=np.int64))[
                0
            ]
        pieces: list[tuple[IntArray, IntArray]] = []
        done = 0
        for stretch in layout.stretches:
            begin, end = stretch.spans()[TEMPLATE]
            # Backwards the template unit runs before its copies, which run before unit 1.
            insert = end if stretch.backwards else begin
            chosen = slice(*np.searchsorted(template_at, (begin, end)))
            rows = copied[::-1, chosen] if stretch.backwards else copied[:, chosen]
            pieces.append((trace.kind[done:insert], subject[done:insert]))
            pieces.append((np.tile(trace.kind[template_at[chosen]], self._copies), rows.reshape(-1)))
            done = insert
        pieces.append((trace.kind[done:], subject[done:]))
        kind = np.concatenate([piece[0] for piece in pieces])
        flat = np.concatenate([piece[1] for piece in pieces])
        return self._with_outside_frees(kind, flat)

    def _with_outside_frees(self, kind: IntArray, subject: IntArray) -> tuple[IntArray, IntArray]:
        """Storages of every unit that something outside frees: the copies' go with the template's."""
        trace, layout = self._trace, self._layout
        outside = (layout.unit_of_event == NO_UNIT) & (trace.kind == Kind.FREE)
        freed = trace.subject[outside]
        by_unit = [set(layout.slot_of_tensor[freed[layout.unit_of_tensor[freed] == unit]]) for unit in (1, 2)]
        if by_unit[0] != by_unit[1]:
            raise CannotFoldError("something outside the blocks keeps some of their tensors")
        if not by_unit[1]:
            return kind, subject
        counts = np.ones(len(kind), dtype=np.int64)
        template = self._layout.slots[TEMPLATE]
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
        template = self._layout.slots[TEMPLATE]
        places = 2 + np.arange(self._copies)

        def tiled(values: IntArray) -> IntArray:
            return np.concatenate([values, np.tile(values[template], self._copies)])

        modules = self._shift_names(trace.tensor_module[template], TEMPLATE, places, self._modules)
        params = self._shift_names(trace.tensor_parameter[template], TEMPLATE, places, self._parameters)
        return {
            "bytes_fixed": tiled(trace.bytes_fixed),
            "bytes_per_sample": tiled(trace.bytes_per_sample),
            "category": tiled(trace.category),
            "tensor_operator": tiled(trace.tensor_operator),
            "tensor_module": np.concatenate([trace.tensor_module, modules.reshape(-1)]),
            "tensor_parameter": np.concatenate([trace.tensor_parameter, params.reshape(-1)]),
            "tensor_shape": trace.tensor_shape + [trace.tensor_shape[t] for t in template] * self._copies,
            "tensor_origin": trace.tensor_origin
            and trace.tensor_origin + [trace.tensor_origin[t] for t in template] * self._copies,
            "tensor_rule": trace.tensor_rule
            and trace.tensor_rule + [trace.tensor_rule[t] for t in template] * self._copies,
        }

    def _operator_columns(self) -> dict[str, Any]:
        trace = self._trace
        template = self._template_operators()
        places = 2 + np.arange(self._copies)
        columns: dict[str, Any] = {}
        for name in WORK:
            values = getattr(trace, name)
            columns[name] = np.concatenate([values, np.tile(values[template], self._copies)])
        modules = self._shift_names(trace.op_module[template], TEMPLATE, places, self._modules)
        columns["op_module"] = np.concatenate([trace.op_module, modules.reshape(-1)])
        for at_name, name in _REFERENCES:
            at, values = getattr(trace, at_name), getattr(trace, name)
            lengths = at[template + 1] - at[template]
            same = same_for_all(trace, self._layout, at_name, name)
            picked = references_of(trace, at_name, name, template)
            shifted = self._shift_tensors(picked, TEMPLATE, places, same)
            ends = at[-1] + np.cumsum(np.tile(lengths, self._copies))
            columns[at_name] = np.concatenate([at, ends])
            columns[name] = np.concatenate([self._real_refs(at, values, same), shifted.reshape(-1)])
        return columns

    def _real_refs(self, at: IntArray, values: IntArray, same: NDArray[np.bool_]) -> IntArray:
        """References of the executed units' operators, with the neighbours they have after insertion."""
        out = values.copy()
        for executed in range(EXECUTED):
            operators = operators_of(self._trace, self._layout, executed)
            places = np.concatenate([np.arange(at[op], at[op + 1]) for op in operators] or [at[:0]])
            kept = same if executed in (1, TEMPLATE) else None
            out[places] = self._shift_tensors(values[places], executed, self._place[executed : executed + 1], kept)[0]
        return out
