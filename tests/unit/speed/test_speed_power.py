"""Power limits: less arithmetic, the same memory, never faster."""

import pytest

from gpu_plan.planner.hardware.catalog import find_gpu
from gpu_plan.planner.speed import rates
from gpu_plan.planner.speed.chips.power import limited, power_exponents


def test_chips_sold_with_two_limits_say_how_much_is_lost() -> None:
    least, usual, most = power_exponents()
    assert 0 < least < usual < most < 1


def test_half_the_power_leaves_more_than_half_the_rate() -> None:
    gpu = find_gpu("H100")
    free = rates.matmul_share(gpu, "bfloat16")
    half = limited(free, gpu, 350)
    assert free.expected / 2 < half.expected < free.expected
    assert half.slow < free.slow
    assert half.fast < free.fast
    assert "350 of 700 W" in half.note


@pytest.mark.parametrize("watts", [None, 700.0, 900.0])
def test_a_limit_that_binds_nothing_changes_nothing(watts: float | None) -> None:
    gpu = find_gpu("H100")
    free = rates.matmul_share(gpu, "bfloat16")
    assert limited(free, gpu, watts) is free
