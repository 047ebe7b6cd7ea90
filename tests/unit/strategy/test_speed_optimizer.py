"""How much memory traffic an optimizer step is said to be."""

import pytest

from gpu_plan.planner.strategy.optimizer_step import optimizer_work
from gpu_plan.planner.workload.training import Optimizer


def touched(optimizer: Optimizer, **more: bool) -> float:
    """Parameter-sized fp32 reads and writes."""
    return optimizer_work(optimizer, 1000, 4, **more).parameter_bytes_read_written / 4000


@pytest.mark.parametrize(
    ("optimizer", "passes"),
    [
        (Optimizer("adamw"), 22),
        (Optimizer("adamw-forloop"), 20),
        (Optimizer("adamw-fused"), 7),
        (Optimizer("sgd"), 3),
        (Optimizer("sgd-momentum"), 8),
    ],
)
def test_operators_that_are_not_fused_pass_over_memory_one_by_one(optimizer: Optimizer, passes: int) -> None:
    assert touched(optimizer) == passes


def test_clipping_reads_gradients_for_the_norm_and_scales_them() -> None:
    assert touched(Optimizer("adamw"), clipping=True) - touched(Optimizer("adamw")) == 3


def test_on_the_host_one_kernel_steps() -> None:
    assert touched(Optimizer("adamw"), on_host=True) == touched(Optimizer("adamw-fused"))
    assert touched(Optimizer("adamw"), on_host=True, flat=True) == 7


def test_deepspeed_casts_gradients_and_weights_around_its_masters() -> None:
    work = optimizer_work(Optimizer("adamw-fused"), 1000, 4, flat=True)
    assert work.parameter_bytes_read_written == 1000 * (7 * 4 + 2 + 4 + 4 + 4 + 4 + 2)
