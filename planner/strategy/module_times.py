"""When each module runs, forward and backward, as event positions of a trace."""

import numpy as np

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import Kind, Mark, StepTrace
from gpu_plan.planner.trace.remembered import of_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTimes:
    """First and last events of modules by qualified name; a module that does not run is absent."""

    enter: dict[str, int]
    exit: dict[str, int]
    backward_enter: dict[str, int]
    backward_exit: dict[str, int]


@of_trace
def module_times(trace: StepTrace) -> ModuleTimes:
    """Positions of first forward entry, last forward exit, first backward entry and last backward exit."""
    backward_at = trace.mark_position(Mark.BACKWARD)
    return ModuleTimes(
        enter=_first(trace, Kind.ENTER, 0, backward_at),
        exit=_last(trace, Kind.EXIT, 0, backward_at),
        backward_enter=_first(trace, Kind.BACKWARD_ENTER, backward_at, trace.num_events),
        backward_exit=_last(trace, Kind.BACKWARD_EXIT, backward_at, trace.num_events),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTimes:
    """When several modules that are handled as one run: first and last event of each direction, None where none is."""

    forward: tuple[int | None, int | None]
    backward: tuple[int | None, int | None]
    runs: bool
    """Whether one of them is entered and left in forward."""


@of_trace
def unit_times(trace: StepTrace, modules: tuple[str, ...]) -> UnitTimes:
    """Of modules by name."""
    times = module_times(trace)

    def among(at: dict[str, int]) -> list[int]:
        return [at[module] for module in modules if module in at]

    return UnitTimes(
        forward=(min(among(times.enter), default=None), max(among(times.exit), default=None)),
        backward=(min(among(times.backward_enter), default=None), max(among(times.backward_exit), default=None)),
        runs=any(module in times.enter and module in times.exit for module in modules),
    )


def _positions(trace: StepTrace, kind: Kind, start: int, end: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return start + np.flatnonzero(trace.kind[start:end] == kind)


def _first(trace: StepTrace, kind: Kind, start: int, end: int) -> dict[str, int]:
    at = _positions(trace, kind, start, end)
    return _by_module(trace, at[::-1])


def _last(trace: StepTrace, kind: Kind, start: int, end: int) -> dict[str, int]:
    return _by_module(trace, _positions(trace, kind, start, end))


def _by_module(trace: StepTrace, at: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> dict[str, int]:
    """The last of these positions that each module has."""
    found = dict(zip(trace.subject[at].tolist(), at.tolist(), strict=True))
    return {trace.modules[module]: found[module] for module in sorted(found)}
