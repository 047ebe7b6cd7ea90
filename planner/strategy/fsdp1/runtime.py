"""When FSDP1 gathers, frees and reduces flat parameters: its runtime, followed event by event.

Mirrors torch/distributed/fsdp (torch 2.13): _runtime_utils.py (_pre_forward, _post_forward, _pre_backward_hook,
_post_backward_hook, _post_backward_reshard_only_hook, _prefetch_handle, _post_backward_final_callback) and
_exec_order_utils.py (record_post_forward, get_handle_to_backward_prefetch), with BACKWARD_PRE prefetch and none in
forward. A unit is an FSDP instance with a flat parameter; instances may lie inside one another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

import numpy as np

from gpu_plan.planner.strategy.fsdp1.flat import FlatUnit
from gpu_plan.planner.strategy.module_times import module_times
from gpu_plan.planner.trace.events import Kind, Mark, StepTrace


class ActionKind(Enum):
    """What happens to a unit."""

    UNSHARD = "unshard"
    LIMIT = "limit"
    """It is asked for and gathered already: the rate limiter takes its turn all the same."""
    USE = "use"
    """The computation waits for what was gathered."""
    RESHARD = "reshard"
    REDUCE = "reduce"
    """Its gradients become one, the parameter is freed, the gradient goes to the other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitAction:
    """One act at a moment of the traced step: before event `event`."""

    event: int
    act: ActionKind
    unit: FlatUnit


class _What(IntEnum):
    """Hooks, in the order in which they run where they meet."""

    POST_FORWARD = 0
    POST_BACKWARD = 1
    PRE_BACKWARD = 2
    RESHARD_ONLY = 3
    """A hook on the unit's inputs, registered behind that of the unit which made them."""
    PRE_FORWARD = 4


@dataclass(slots=True)
class _Handle:
    """The flags of a FlatParamHandle."""

    unit: FlatUnit
    gathered: bool = False
    in_backward: bool = False
    """HandleTrainingState.BACKWARD_PRE."""
    prefetched: bool = False
    needs_unshard: bool = False
    ran_pre_backward: bool = False
    index: int | None = None
    """Place in the order of forward's ends."""


def unit_actions(
    trace: StepTrace, units: Sequence[FlatUnit], *, checkpointed_outside: bool = False
) -> list[UnitAction]:
    """Acts of one forward and backward pass in time order; what stands at its end is resharded.

    `checkpointed_outside`: reentrant checkpointing stands around the wrapped modules, as transformers before 4.52 had
    it. Their first forward runs without gradients and registers no hooks for backward (_register_pre_backward_hooks
    returns at once), so that no neighbour can be gathered ahead; a module is gathered for its own recomputation, freed
    behind it and gathered again at once.
    """
    runtime = _Runtime(units, prefetches=not checkpointed_outside)
    for event, what, index in sorted(_Hooks(trace, units).found()):
        runtime.run(event, what, index)
    runtime.finish(trace.num_events + 1)
    return runtime.actions


class _Runtime:
    """_runtime_utils.py, with the actions written down."""

    def __init__(self, units: Sequence[FlatUnit], *, prefetches: bool) -> None:
        self.actions: list[UnitAction] = []
        self._prefetches = prefetches
        self._handles = [_Handle(unit) for unit in units]
        self._order: list[_Handle] = []
        self._hooks: dict[_What, Callable[[int, _Handle], None]] = {
            _What.PRE_FORWARD: self._pre_forward,
            _What.POST_FORWARD: self._post_forward,
            _What.PRE_BACKWARD: self._pre_backward,
            _What.POST_BACKWARD: self._post_backward,
            _What.RESHARD_ONLY: self._reshard_only,
        }

    def run(self, event: int, what: _What, index: int) -> None:
        self._hooks[what](event, self._handles[index])

    def finish(self, event: int) -> None:
        """_catch_all_reshard."""
        for handle in self._handles:
            self._reshard(event, handle)

    def _write(self, event: int, act: ActionKind, handle: _Handle) -> None:
        self.actions.append(UnitAction(event=event, act=act, unit=handle.unit))

    def _unshard(self, event: int, handle: _Handle) -> None:
        self._write(event, ActionKind.LIMIT if handle.gathered else ActionKind.UNSHARD, handle)
        handle.gathered = True

    def _reshard(self, event: int, handle: _Handle) -> None:
        if handle.gathered:
            self._write(event, ActionKind.RESHARD, handle)
        handle.gathered = handle.prefetched = False

    def _pre_forward(self, event: int, handle: _Handle) -> None:
        if not handle.in_backward and not handle.prefetched:
            self._unshard(event, handle)
        if not handle.in_backward:
            self._write(event, ActionKind.USE, handle)

    def _post_forward(self, event: int, handle: _Handle) -> None:
        if handle.in_backward:
            return
        if not handle.index:
            # record_post_forward takes the index 0 for none, too.
            handle.index = len(self._order)
        self._order.append(handle)
        if not handle.unit.is_root:
            self._reshard(event, handle)
        handle.prefetched = False
        handle.needs_unshard, handle.ran_pre_backward = True, False

    def _pre_backward(self, event: int, handle: _Handle) -> None:
        if handle.ran_pre_backward:
            return
        handle.in_backward = True
        if handle.needs_unshard:
            if not handle.prefetched:
                self._unshard(event, handle)
            self._write(event, ActionKind.USE, handle)
        handle.needs_unshard = False
        if handle.index and self._prefetches:
            ahead = self._order[handle.index - 1]
            if ahead.needs_unshard and not ahead.prefetched:
                self._unshard(event, ahead)
                ahead.prefetched = True
        handle.ran_pre_backward = True

    def _post_backward(self, event: int, handle: _Handle) -> None:
        handle.in_backward = False
        self._write(event, ActionKind.REDUCE, handle)
        handle.gathered = handle.prefetched = False

    def _reshard_only(self, event: int, handle: _Handle) -> None:
        handle.in_backward = False
        self._reshard(event, handle)


class _Hooks:
    """Finds in a trace where FSDP1's hooks would run."""

    def __init__(self, trace: StepTrace, units: Sequence[FlatUnit]) -> None:
        self._trace = trace
        self._units = units
        self._times = module_times(trace)
        at = np.flatnonzero(trace.kind == Kind.GRADIENT)
        self._gradients = {int(trace.subject[position]): int(position) for position in at}
        self._backward = trace.mark_position(Mark.BACKWARD)
        self._end = trace.mark_position(Mark.BACKWARD_END)

    def found(self) -> list[tuple[int, _What, int]]:
        """(event before which it runs, hook, unit)."""
        hooks = self._of_modules()
        for number, unit in enumerate(self._units):
            if unit.is_root:
                start = self._times.enter.get(unit.module, self._trace.mark_position(Mark.FORWARD))
                hooks += [
                    (start, _What.PRE_FORWARD, number),
                    (self._backward, _What.POST_FORWARD, number),
                    (self._backward, _What.PRE_BACKWARD, number),
                ]
            elif unit.module not in self._times.enter:
                continue
            if unit.trainable:
                hooks.append((self._complete_at(unit) + 1, _What.POST_BACKWARD, number))
            elif not unit.is_root and (at := self._inputs_done_at(unit)) is not None:
                hooks.append((at, _What.RESHARD_ONLY, number))
        return hooks

    def _of_modules(self) -> list[tuple[int, _What, int]]:
        """What the entries and exits of wrapped modules set off, recomputation included."""
        trace = self._trace
        numbers = {unit.module: number for number, unit in enumerate(self._units) if not unit.is_root}
        ours = [index for index, name in enumerate(trace.modules) if name in numbers]
        kinds = {Kind.ENTER: _What.PRE_FORWARD, Kind.EXIT: _What.POST_FORWARD, Kind.BACKWARD_ENTER: _What.PRE_BACKWARD}
        hooks = []
        for position in np.flatnonzero(np.isin(trace.kind, list(kinds)) & np.isin(trace.subject, ours)):
            what = kinds[Kind(int(trace.kind[position]))]
            number = numbers[trace.modules[int(trace.subject[position])]]
            if what is _What.POST_FORWARD and self._is_broken_off(int(position)):
                continue
            hooks.append((int(position) + (what is _What.POST_FORWARD), what, number))
        return hooks

    def _is_broken_off(self, exit_at: int) -> bool:
        """Whether recomputation stopped inside the module: the exits of all that was entered follow at once.

        torch/utils/checkpoint.py: _StopRecomputationError passes FSDP's forward hooks by.
        """
        if exit_at < self._backward:
            return False
        kind = self._trace.kind
        following = exit_at + 1
        while following < len(kind) and kind[following] == Kind.EXIT:
            following += 1
        return following > exit_at + 1 and self._leaves_a_block(exit_at, following)

    def _leaves_a_block(self, first: int, last: int) -> bool:
        blocks = self._trace.layout.blocks
        left = [self._trace.modules[int(subject)] for subject in self._trace.subject[first:last]]
        depth = max((name.count(".") for name in blocks), default=0) + 1
        return any(name.count(".") <= depth for name in left)

    def _complete_at(self, unit: FlatUnit) -> int:
        """Event after which a unit's flat gradient is put together.

        autograd runs ready nodes in the reverse of the order in which forward made them, and the split into views
        was made before anything else of the unit: its backward waits for all of the unit's own, the root's for all.
        """
        of = range(len(self._trace.parameters)) if unit.is_root else unit.parameters
        found = [at for index in of if (at := self._gradients.get(index)) is not None]
        if unit.is_root:
            return max(found, default=self._end)
        return max([*found, self._times.backward_exit.get(unit.module, self._end)])

    def _inputs_done_at(self, unit: FlatUnit) -> int | None:
        """Event before which a frozen unit's inputs have their gradients; None where none of them requires one."""
        times = self._times
        leave = times.backward_exit.get(unit.module)
        if leave is None or not self._input_requires_gradient(unit):
            return None
        return leave + 1

    def _input_requires_gradient(self, unit: FlatUnit) -> bool:
        """The first module inside that holds frozen parameters of the unit has backward nodes for its input alone."""
        times = self._times
        holders = {self._trace.parameters[index].module for index in unit.parameters}
        ran = [name for name in holders if name in times.enter]
        return not ran or min(ran, key=times.enter.__getitem__) in times.backward_enter
