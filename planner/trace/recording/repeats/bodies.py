"""Where a recording of one sample more has a further run through a loop: pure arithmetic on what was recorded.

What a step does is a row of events; of one more sample it is the same row with further ones between, each stretch of
which says again what stands before it. What events name (a storage that is freed, those that an operator reads) is
named by its place: in the row, or in which run through which loop.
"""

import numpy as np

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.trace.events import IntArray, Kind
from gpu_plan.planner.trace.recording.recorder import RawTensor, RawTrace


class UnlikeError(Exception):
    """Two recordings do not differ by further runs through loops alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What is run through once more for a further sample."""

    end: int
    """Place in the smaller row behind the last run through it that stands there."""
    length: int

    @property
    def begin(self) -> int:
        """Place of that run's first event."""
        return self.end - self.length


Place = tuple[int, int, int]
"""Number of a body, -1 outside of all; which run through it; where the first such run has the event."""
NOWHERE: Place = (-2, 0, 0)
"""Of what no event made: parameters, buffers, inputs."""


def rows_of(*traces: RawTrace) -> list[IntArray]:
    """Each as numbers that are equal where nothing but sizes and what is named tell events apart."""
    numbers: dict[object, int] = {}
    found = []
    for raw in traces:
        kind, row = np.asarray(raw.kind, dtype=np.int64), np.asarray(raw.subject, dtype=np.int64)
        tensors = [numbers.setdefault(_said(tensor), len(numbers)) for tensor in raw.tensors]
        operators = [numbers.setdefault((one.name, one.module, one.phase), len(numbers)) for one in raw.operators]
        for which, said in (((kind == Kind.ALLOC) | (kind == Kind.FREE), tensors), (kind == Kind.OPERATOR, operators)):
            row[which] = np.asarray(said, dtype=np.int64)[row[which]]
        found.append(row * len(Kind) + kind)
    return found


def _said(one: RawTensor) -> tuple[object, ...]:
    rule = None if one.ruled is None else type(one.ruled.rule)
    where = (one.module, one.operator, one.parameter, one.origin, one.name)
    return one.dtype, one.category, one.is_scratch, rule, *where


def bodies_of(few: IntArray, more: IntArray) -> list[Body]:
    """What the second row has once more than the first. UnlikeError where that is not all."""
    found: list[Body] = []
    here, there = 0, 0
    while True:
        alike = min(len(few) - here, len(more) - there)
        unlike = np.flatnonzero(few[here : here + alike] != more[there : there + alike])
        step = int(unlike[0]) if len(unlike) else alike
        here, there = here + step, there + step
        if here == len(few) and there == len(more):
            return found
        length = _further(few, here, more, there)
        body = Body(end=here, length=length)
        if found and body.begin < found[-1].end:
            raise UnlikeError("runs through two loops overlap")
        found.append(body)
        there += length


def _further(few: IntArray, here: int, more: IntArray, there: int) -> int:
    """How many events at `there` say again what stands before them, so that the first row goes on behind them."""
    most = min(len(more) - there - (len(few) - here), there)
    at_end = here == len(few)
    candidates = [most] if at_end else (np.flatnonzero(more[there + 1 : there + most + 1] == few[here]) + 1).tolist()
    for length in candidates:
        if length > 0 and np.array_equal(more[there - length : there], more[there : there + length]):
            return int(length)
    raise UnlikeError("what is further does not repeat what stands before it")
