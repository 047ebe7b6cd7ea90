"""What follows from a trace is worked out once for each trace, and goes with it."""

import gc
import weakref

from gpu_plan.planner.trace.remembered import of_trace
from tests.support.tiny_trace import tiny_trace


def test_once_for_a_trace_and_its_arguments():
    asked = []

    @of_trace
    def shapes(trace, most, *, twice=False):
        asked.append((trace, most, twice))
        return [parameter.shape for parameter in trace.parameters][:most] * (2 if twice else 1)

    one, other = tiny_trace([(4, 4)]), tiny_trace([(4, 4)])
    assert shapes(one, 1) is shapes(one, 1)
    assert shapes(one, 1) is not shapes(other, 1), "equal traces are told apart: nobody compares them"
    assert shapes(one, 1, twice=True) == [(4, 4), (4, 4)]
    assert len(asked) == 3


def test_nothing_outlives_its_trace():
    made = of_trace(lambda trace: list(trace.parameters))
    trace = tiny_trace([(4, 4)])
    made(trace)
    gone = weakref.ref(trace)
    del trace
    gc.collect()
    assert gone() is None
