"""Orders of a trace's events so far, by what decides them: many of its ranks differ in sizes alone."""

import weakref
from typing import Any

from numpy.typing import NDArray

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray, StepTrace
from gpu_plan.planner.trace.remembered import of_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Events in time order; arrays are those of `RankStream`."""

    sign: IntArray
    tensor: IntArray
    segment: IntArray
    in_backward: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """When what waits comes back in such an order: `RankStream.event_return`, and the arrays of its `History`."""

    returns: IntArray
    freed: IntArray
    moments: IntArray


Known = tuple[Ordered, Returned | None]
_Array = weakref.ref[NDArray[Any]]


class Orders:
    """Each as long as there is a stream that has it."""

    def __init__(self) -> None:
        self._held: dict[object, tuple[tuple[_Array, ...], tuple[_Array, ...]]] = {}

    def get(self, key: object) -> Known | None:
        """What is known under a key."""
        if key not in self._held:
            return None
        ordered, returned = ([array() for array in arrays] for arrays in self._held[key])
        if any(array is None for array in (*ordered, *returned)):
            return None
        return _of(Ordered, ordered), _of(Returned, returned) if returned else None

    def put(self, key: object, known: Known) -> None:
        """One more."""
        ordered, returned = known
        gone = [key for key, held in self._held.items() if any(array() is None for array in (*held[0], *held[1]))]
        for old in gone:
            del self._held[old]
        self._held[key] = _refs(ordered), () if returned is None else _refs(returned)


def _refs(of: Ordered | Returned) -> tuple[_Array, ...]:
    return tuple(weakref.ref(getattr(of, name)) for name in type(of).__dataclass_fields__)


def _of(kind: Any, arrays: list[Any]) -> Any:
    return kind(**dict(zip(kind.__dataclass_fields__, arrays, strict=True)))


@of_trace
def orders(_: StepTrace) -> Orders:
    """Of a trace."""
    return Orders()
