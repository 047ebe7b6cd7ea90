"""What is said of an exception that is no fault of the code."""

import pytest

from gpu_plan.planner.capture.script.advice import about


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (NotImplementedError("Cannot access storage of SparseTensorImpl"), "sparse, which are not planned"),
        (RuntimeError("Cannot access data pointer of a TensorWrapper"), "torch.func"),
        (RuntimeError("shapes do not match"), ""),
    ],
)
def test_tensors_that_no_step_is_planned_with_are_named(problem: BaseException, said: str) -> None:
    found = about(problem, "loss.backward()")
    assert said in found
    assert bool(found) == bool(said)
