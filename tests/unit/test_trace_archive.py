"""A trace as it is kept in a file: what is read is what was written."""

from dataclasses import replace

import pytest

from gpu_plan.planner.trace.events import ParameterInfo
from gpu_plan.planner.trace.storage.archive import dump, load
from tests.support.same_trace import assert_same_trace
from tests.unit.test_expand import step


@pytest.mark.parametrize("small", [False, True])
def test_a_trace_comes_back_as_it_was(small: bool) -> None:
    trace = step(5, folded=False, shared=True)
    assert_same_trace(load(dump(trace, small=small)), trace)


@pytest.mark.parametrize(
    "traits",
    [
        {},
        {"split": True},
        {"experts": True},
        {"split": True, "experts": True},
        {"tied_to": "lm_head.weight"},
        {"trainable": False, "dtype": "uint8"},
    ],
)
def test_parameters_come_back_as_they_were(traits: dict[str, object]) -> None:
    whole: dict[str, object] = {"shape": (4, 4), "dtype": "float32", "trainable": True, "module": "layers.0"}
    parameter = ParameterInfo(name="layers.0.weight", **{**whole, **traits})  # type: ignore[arg-type]
    trace = step(5, folded=False)
    trace = replace(trace, parameters=[parameter, *trace.parameters[1:]])
    assert load(dump(trace)).parameters == trace.parameters
