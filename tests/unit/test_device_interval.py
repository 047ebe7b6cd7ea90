"""Device memory in use: which term is known how well."""

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.overheads import Term, cached_blocks, nccl
from gpu_plan.planner.memory.profile import MemoryProfile
from gpu_plan.planner.memory.stream import Phase
from gpu_plan.planner.search.device_use import DeviceUse, Simulated
from gpu_plan.planner.trace.events import CATEGORIES
from gpu_plan.planner.units import GIB, MIB


def use(simulated: Simulated, capacity: int = 80 * GIB) -> DeviceUse:
    context = Term(name="CUDA context", low=MIB, expected=2 * MIB, high=3 * MIB, basis="measured", source="test")
    profile = MemoryProfile(
        peak_allocated_bytes=10 * GIB,
        phase_of_peak=Phase.BACKWARD,
        at_peak=dict.fromkeys(CATEGORIES, 0),
        at_rest_bytes=0,
        phase_peaks={},
    )
    return DeviceUse(profile=profile, terms=(context,), host_bytes=0, capacity_bytes=capacity, simulated=simulated)


@pytest.mark.parametrize("other", [11, 14])
def test_both_orders_of_addresses_bound_what_is_cached(other: int) -> None:
    found = use(Simulated(reserved_bytes=12 * GIB, squeezed_bytes=12 * GIB, retries=0, other_order=lambda: other * GIB))
    assert found.used_low_bytes == min(12, other) * GIB + MIB
    assert found.expected_bytes == 12 * GIB + 2 * MIB
    assert found.used_high_bytes == max(12, other) * GIB + 3 * MIB


def test_blocks_that_wait_for_another_stream_may_also_not() -> None:
    simulated = Simulated(
        reserved_bytes=12 * GIB, squeezed_bytes=12 * GIB, retries=0, other_order=lambda: 12 * GIB, waiting_bytes=GIB
    )
    found = use(simulated)
    assert found.used_low_bytes == 11 * GIB + MIB
    assert found.used_high_bytes == 12 * GIB + 3 * MIB


def test_a_run_under_pressure_can_show_anything_that_the_device_has() -> None:
    found = use(Simulated(reserved_bytes=20 * GIB, squeezed_bytes=15 * GIB, retries=2), capacity=16 * GIB)
    assert found.used_low_bytes == 10 * GIB + MIB
    assert found.used_high_bytes >= 16 * GIB


def test_what_is_cached_never_grows_beyond_the_device() -> None:
    term = cached_blocks(2 * GIB, 9 * GIB, 5 * GIB, pressed=False)
    assert (term.low, term.expected, term.high) == (2 * GIB, 2 * GIB, 5 * GIB)


def test_two_gpus_are_each_others_only_neighbour() -> None:
    """A ring's buffers serve the trees of a pair as well; of more than two GPUs they double."""
    pair, group = nccl(parse_cluster("2xA100-80GB")), nccl(parse_cluster("4xA100-80GB"))
    assert pair.expected == 24 * 12 * MIB
    assert group.expected == 2 * pair.expected
    assert all(term.low < term.expected < term.high for term in (pair, group))
    assert nccl(parse_cluster("1xA100-80GB")).high == 0
