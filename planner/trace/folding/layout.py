"""Where the executed units of a fold lie in a trace."""

from dataclasses import dataclass

import numpy as np

from gpu_plan.planner.trace.events import IntArray, Kind, Mark, StepTrace
from gpu_plan.planner.trace.folding.units import CannotFoldError, Fold

NO_UNIT = -1
EXECUTED = 4
TEMPLATE = 2
"""The executed unit that is copied."""


@dataclass(slots=True, kw_only=True)
class FoldLayout:
    """Where the four executed units of one fold lie in a trace."""

    unit_of_event: IntArray
    unit_of_tensor: IntArray
    slot_of_tensor: IntArray
    slots: list[IntArray]
    """Tensor ids by slot, for each executed unit."""


def module_prefixes(fold: Fold, unit: int) -> tuple[str, ...]:
    return tuple(f"{fold.list_name}.{index}" for index in fold.blocks(unit))


def executed_units(fold: Fold) -> tuple[int, int, int, int]:
    """Which units of the run were executed."""
    return (0, 1, fold.units - 2, fold.units - 1)


def fold_layout(trace: StepTrace, fold: Fold) -> FoldLayout:
    index_of = {name: position for position, name in enumerate(trace.modules)}
    backward_at = trace.mark_position(Mark.BACKWARD)
    unit_of_event = np.full(trace.num_events, NO_UNIT, dtype=np.int64)
    forward_starts, forward_end = [], 0
    backward_starts, backward_end = [], 0
    for unit in executed_units(fold):
        names = module_prefixes(fold, unit)
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
        end = forward_starts[unit + 1] if unit + 1 < EXECUTED else forward_end
        unit_of_event[begin:end] = unit
    for unit, begin in enumerate(backward_starts):
        end = backward_starts[unit - 1] if unit > 0 else backward_end
        unit_of_event[begin:end] = unit
    unit_of_tensor = np.full(trace.num_tensors, NO_UNIT, dtype=np.int64)
    slot_of_tensor = np.zeros(trace.num_tensors, dtype=np.int64)
    slots = []
    allocs = trace.kind == Kind.ALLOC
    for unit in range(EXECUTED):
        made = trace.subject[allocs & (unit_of_event == unit)]
        unit_of_tensor[made] = unit
        slot_of_tensor[made] = np.arange(len(made))
        slots.append(made)
    return FoldLayout(
        unit_of_event=unit_of_event, unit_of_tensor=unit_of_tensor, slot_of_tensor=slot_of_tensor, slots=slots
    )


def _after_frees(trace: StepTrace, position: int) -> int:
    """What a block's caller drops right after it belongs to the block."""
    while position < trace.num_events and trace.kind[position] == Kind.FREE:
        position += 1
    return position
