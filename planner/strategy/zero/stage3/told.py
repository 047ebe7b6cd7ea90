"""ZeRO-3's coordinator, asked once: what it takes and gives at each call is kept with the trace.

What is gathered, prefetched and released follows from the trace, the sizes and the limits. Where the optimizer's state
or the partitions lie changes none of it: ranks that differ in that alone repeat the calls, and what came of each.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from gpu_plan.planner.memory.stream import Point
from gpu_plan.planner.strategy.zero.stage3.gather import Coordinator, Gather, Storage
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.remembered import of_trace

_FETCHED = "fetched"
_GIVEN = "given"
_GATHERED = "gathered"
_OF = "of"
_LIMITED = "limited"
_USED = "used"

Did = tuple[tuple[str, int], ...]
"""What one call took and gave, in order: a label and elements; `_FETCHED` and elements; `_GIVEN` and a ticket;
`_GATHERED` and elements, `_OF` and parameters; `_LIMITED`; `_USED` and how many landed."""


@dataclass(slots=True)
class Script:
    """Every call's part, and the gathers since the last forward began."""

    calls: list[Did] = field(default_factory=list)
    gathers: Counter[Gather] = field(default_factory=Counter)


@of_trace
def scripts(trace: StepTrace) -> dict[object, Script]:
    """Finished ones of a trace, by all else that they depend on; whoever makes one adds it."""
    return {}


class Asked(Protocol):
    """The coordinator as a rank calls it; its methods are those of `Coordinator`."""

    gathers: Counter[Gather]

    def begin(self, at: Point) -> None: ...

    def fetch(self, at: Point, module: int, *, backward: bool) -> None: ...

    def release(
        self, at: Point, module: int, *, backward: bool, recorded: bool = False, recomputed: bool = False
    ) -> None: ...

    def forget_view(self, at: Point, parameter: int) -> None: ...

    def drop_graphs(self, at: Point, *, but: int) -> None: ...

    def finish_backward(self, at: Point) -> None: ...

    def begin_step(self, at: Point) -> None: ...

    def end_step(self, at: Point) -> None: ...


class Recorder:
    """A storage that passes on what it is asked, and keeps it."""

    def __init__(self, storage: Storage[Point]) -> None:
        self._storage = storage
        self._now: list[tuple[str, int]] = []

    def take(self, at: Point, elements: int, label: str) -> int:
        """As of `Storage`."""
        self._now.append((label, elements))
        return self._storage.take(at, elements, label)

    def fetch(self, at: Point, elements: int) -> int:
        """As of `Storage`."""
        self._now.append((_FETCHED, elements))
        return self._storage.fetch(at, elements)

    def give(self, at: Point, ticket: int) -> None:
        """As of `Storage`."""
        self._now.append((_GIVEN, ticket))
        self._storage.give(at, ticket)

    def gather(self, at: Point, elements: int, parameters: int) -> None:
        """As of `Storage`."""
        self._now += [(_GATHERED, elements), (_OF, parameters)]
        self._storage.gather(at, elements, parameters)

    def limit(self, at: Point) -> None:
        """As of `Storage`."""
        self._now.append((_LIMITED, 0))
        self._storage.limit(at)

    def use(self, at: Point, landed: int) -> None:
        """As of `Storage`."""
        self._now.append((_USED, landed))
        self._storage.use(at, landed)

    def taken(self) -> Did:
        """What was asked since the last time."""
        if not self._now:
            return ()
        found = tuple(self._now)
        self._now.clear()
        return found


class Recorded:
    """A coordinator whose calls are written down; `storage` is where its buffers are put."""

    def __init__(self, coordinator: Coordinator[Point], recorder: Recorder) -> None:
        self._coordinator, self._recorder = coordinator, recorder
        self._calls: list[Did] = []
        self.gathers = coordinator.gathers

    def script(self) -> Script:
        """All of it, once the run is over."""
        return Script(calls=self._calls, gathers=self.gathers.copy())

    def begin(self, at: Point) -> None:
        self._coordinator.begin(at)
        self._calls.append(self._recorder.taken())

    def fetch(self, at: Point, module: int, *, backward: bool) -> None:
        self._coordinator.fetch(at, module, backward=backward)
        self._calls.append(self._recorder.taken())

    def release(
        self, at: Point, module: int, *, backward: bool, recorded: bool = False, recomputed: bool = False
    ) -> None:
        self._coordinator.release(at, module, backward=backward, recorded=recorded, recomputed=recomputed)
        self._calls.append(self._recorder.taken())

    def forget_view(self, at: Point, parameter: int) -> None:
        self._coordinator.forget_view(at, parameter)
        self._calls.append(self._recorder.taken())

    def drop_graphs(self, at: Point, *, but: int) -> None:
        self._coordinator.drop_graphs(at, but=but)
        self._calls.append(self._recorder.taken())

    def finish_backward(self, at: Point) -> None:
        self._coordinator.finish_backward(at)
        self._calls.append(self._recorder.taken())

    def begin_step(self, at: Point) -> None:
        self._coordinator.begin_step(at)
        self._calls.append(self._recorder.taken())

    def end_step(self, at: Point) -> None:
        self._coordinator.end_step(at)
        self._calls.append(self._recorder.taken())


class Repeated:
    """The same calls again, put into another storage."""

    def __init__(self, script: Script, storage: Storage[Point]) -> None:
        self._calls = iter(script.calls)
        self._storage = storage
        self.gathers = script.gathers

    def begin(self, at: Point) -> None:
        storage, elements = self._storage, 0
        for what, number in next(self._calls):
            if what is _GIVEN:
                storage.give(at, number)
            elif what is _USED:
                storage.use(at, number)
            elif what is _LIMITED:
                storage.limit(at)
            elif what is _GATHERED:
                elements = number
            elif what is _OF:
                storage.gather(at, elements, number)
            elif what is _FETCHED:
                storage.fetch(at, number)
            else:
                storage.take(at, number, what)

    def fetch(self, at: Point, module: int, *, backward: bool) -> None:
        self.begin(at)

    def release(
        self, at: Point, module: int, *, backward: bool, recorded: bool = False, recomputed: bool = False
    ) -> None:
        self.begin(at)

    def forget_view(self, at: Point, parameter: int) -> None:
        self.begin(at)

    def drop_graphs(self, at: Point, *, but: int) -> None:
        self.begin(at)

    finish_backward = begin_step = end_step = begin
