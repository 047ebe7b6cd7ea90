"""Where the executed units of a fold lie in a trace: a training step goes through them forward and back, a generation
forward once in each of its passes."""

from dataclasses import dataclass

import numpy as np

from gpu_plan.planner.trace.events import IntArray, Kind, Mark, StepTrace
from gpu_plan.planner.trace.folding.units import CannotFoldError, Fold

NO_UNIT = -1
EXECUTED = 4
TEMPLATE = 2
"""The executed unit that is copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One run through the executed units."""

    begins: tuple[int, ...]
    """First event of each executed unit."""
    end: int
    """Index behind the last event of the run."""
    backwards: bool = False
    """Whether the last unit runs first."""

    def spans(self) -> list[tuple[int, int]]:
        """Events of each executed unit: first, and one behind the last."""
        order = range(EXECUTED - 1, -1, -1) if self.backwards else range(EXECUTED)
        ends = dict(zip(order, [*(self.begins[unit] for unit in list(order)[1:]), self.end], strict=True))
        return [(self.begins[unit], ends[unit]) for unit in range(EXECUTED)]


@dataclass(slots=True, kw_only=True)
class FoldLayout:
    """Where the four executed units of one fold lie in a trace."""

    unit_of_event: IntArray
    unit_of_tensor: IntArray
    slot_of_tensor: IntArray
    slots: list[IntArray]
    """Tensor ids by slot, for each executed unit."""
    stretches: tuple[Stretch, ...]
    """Runs through the units, in order."""


def module_prefixes(fold: Fold, unit: int) -> tuple[str, ...]:
    return tuple(f"{fold.list_name}.{index}" for index in fold.blocks(unit))


def executed_units(fold: Fold) -> tuple[int, int, int, int]:
    """Which units of the run were executed."""
    return (0, 1, fold.units - 2, fold.units - 1)


def fold_layout(trace: StepTrace, fold: Fold) -> FoldLayout:
    """CannotFoldError where units do not run one after the other, each once in a run."""
    has_backward = bool(np.any((trace.kind == Kind.MARK) & (trace.subject == Mark.BACKWARD)))
    stretches = _there_and_back(trace, fold) if has_backward else _passes(trace, fold)
    unit_of_event = np.full(trace.num_events, NO_UNIT, dtype=np.int64)
    for stretch in stretches:
        for unit, (begin, end) in enumerate(stretch.spans()):
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
    _let_go_once(trace, stretches, unit_of_event, unit_of_tensor)
    return FoldLayout(
        unit_of_event=unit_of_event,
        unit_of_tensor=unit_of_tensor,
        slot_of_tensor=slot_of_tensor,
        slots=slots,
        stretches=stretches,
    )


def _let_go_once(
    trace: StepTrace, stretches: tuple[Stretch, ...], unit_of_event: IntArray, unit_of_tensor: IntArray
) -> None:
    """What all units use and the last of them to use it lets go (a mask of one kind of layers, which the blocks at the
    ends may not have) is no unit's event: it stays where it is, in the unit that stands nearest to that end."""
    subject = np.where(trace.kind == Kind.FREE, trace.subject, 0)
    shared = (trace.kind == Kind.FREE) & (unit_of_tensor[subject] == NO_UNIT)
    for stretch in stretches:
        last = 1 if stretch.backwards else TEMPLATE
        spans = stretch.spans()
        found = {unit: np.flatnonzero(shared[begin:end]) + begin for unit, (begin, end) in enumerate(spans)}
        if len(found[last]) and not len(found[1 if last == TEMPLATE else TEMPLATE]):
            unit_of_event[found[last]] = NO_UNIT


def _there_and_back(trace: StepTrace, fold: Fold) -> tuple[Stretch, ...]:
    """A training step's."""
    backward_at = trace.mark_position(Mark.BACKWARD)
    forward: list[int] = []
    backward: list[int] = []
    forward_end = backward_end = 0
    for unit, (first, last) in enumerate(_ends(trace, fold)):
        entered = np.flatnonzero((trace.kind == Kind.ENTER) & (trace.subject == first))
        left = np.flatnonzero((trace.kind == Kind.EXIT) & (trace.subject == last))
        returned = np.flatnonzero((trace.kind == Kind.BACKWARD_ENTER) & (trace.subject == last))
        done = np.flatnonzero((trace.kind == Kind.BACKWARD_EXIT) & (trace.subject == first))
        if not (len(entered) and len(left) and len(returned) and len(done)) or entered[0] > backward_at:
            raise CannotFoldError("a block does not run in both directions")
        if np.count_nonzero(entered < backward_at) != 1:
            raise CannotFoldError("a block runs more than once")
        forward.append(int(entered[0]))
        backward.append(int(returned[0]))
        forward_end = _after_frees(trace, int(left[left < backward_at][-1]) + 1)
        if unit == 0:
            backward_end = _after_frees(trace, int(done[-1]) + 1)
    return (
        Stretch(begins=tuple(forward), end=forward_end),
        Stretch(begins=tuple(backward), end=backward_end, backwards=True),
    )


def _passes(trace: StepTrace, fold: Fold) -> tuple[Stretch, ...]:
    """A generation's: an encoder's blocks run in the first of its passes alone, those of an eye that is shut never."""
    entered, left = [], []
    for first, last in _ends(trace, fold):
        entered.append(np.flatnonzero((trace.kind == Kind.ENTER) & (trace.subject == first)))
        left.append(np.flatnonzero((trace.kind == Kind.EXIT) & (trace.subject == last)))
    counts = {len(found) for found in (*entered, *left)}
    if counts == {0}:
        return ()
    if len(counts) != 1:
        raise CannotFoldError("a block does not run in every pass")
    order = np.stack([row for pair in zip(entered, left, strict=True) for row in pair], axis=1).reshape(-1)
    if np.any(np.diff(order) <= 0):
        raise CannotFoldError("a block runs more than once")
    return tuple(
        Stretch(begins=tuple(int(found[index]) for found in entered), end=_after_frees(trace, int(left[-1][index]) + 1))
        for index in range(len(entered[0]))
    )


def _ends(trace: StepTrace, fold: Fold) -> list[tuple[int, int]]:
    """First and last module of each executed unit."""
    index_of = {name: position for position, name in enumerate(trace.modules)}
    found = []
    for unit in executed_units(fold):
        names = module_prefixes(fold, unit)
        if any(name not in index_of for name in names):
            raise CannotFoldError("blocks share modules")
        found.append((index_of[names[0]], index_of[names[-1]]))
    return found


def _after_frees(trace: StepTrace, position: int) -> int:
    """What a block's caller drops right after it belongs to the block."""
    while position < trace.num_events and trace.kind[position] == Kind.FREE:
        position += 1
    return position
