"""Device memory in use: which term is known how well."""

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.overheads import Term, cached_blocks, nccl
from gpu_plan.planner.memory.profile import PeakDetails, known
from gpu_plan.planner.memory.stream import Phase
from gpu_plan.planner.search.device_use import DeviceUse, Simulated
from gpu_plan.planner.trace.events import CATEGORIES
from gpu_plan.planner.units import GIB, MIB


def use(simulated: Simulated, capacity: int = 80 * GIB) -> DeviceUse:
    context = Term(name="CUDA context", low=MIB, expected=2 * MIB, high=3 * MIB, basis="measured", source="test")
    details = PeakDetails(
        phase_of_peak=Phase.BACKWARD, at_peak=dict.fromkeys(CATEGORIES, 0), at_rest_bytes=0, phase_peaks={}
    )
    profile = known(10 * GIB, details)
    return DeviceUse(profile=profile, terms=(context,), host_bytes=0, capacity_bytes=capacity, simulated=simulated)


def test_what_nobody_decides_bounds_what_is_cached() -> None:
    """Orders of addresses and schedules of the host: the least and the most over all of them."""
    simulated = Simulated(
        reserved_bytes=12 * GIB, reserved_under_pressure=12 * GIB, retries=0, extremes=lambda: (11 * GIB, 14 * GIB)
    )
    found = use(simulated)
    assert found.used_low_bytes == 11 * GIB + MIB
    assert found.expected_bytes == 12 * GIB + 2 * MIB
    assert found.used_high_bytes == 14 * GIB + 3 * MIB


def test_a_run_under_pressure_shows_what_it_settles_at() -> None:
    simulated = Simulated(
        reserved_bytes=20 * GIB, reserved_under_pressure=15 * GIB, retries=2, extremes=lambda: (12 * GIB, 13 * GIB)
    )
    found = use(simulated, capacity=16 * GIB)
    assert found.used_low_bytes == 12 * GIB + MIB
    assert found.used_high_bytes == 13 * GIB + 3 * MIB
    assert found.used_bytes == found.used_high_bytes, (
        "what it would have kept on a larger device is no figure of this one"
    )
    assert found.cached is not None
    assert found.cached.low <= found.cached.expected == found.cached.high


def test_what_is_cached_never_grows_beyond_the_device() -> None:
    term = cached_blocks(2 * GIB, 2 * GIB, 9 * GIB, 5 * GIB, pressed=False)
    assert (term.low, term.expected, term.high) == (2 * GIB, 2 * GIB, 5 * GIB)


def test_two_gpus_are_each_others_only_neighbour() -> None:
    """A ring's buffers serve the trees of a pair as well; of more than two GPUs they double."""
    pair, group = nccl(parse_cluster("2xA100-80GB")), nccl(parse_cluster("4xA100-80GB"))
    assert pair.expected == 24 * 12 * MIB
    assert group.expected == 2 * pair.expected
    assert all(term.low == term.expected < term.high for term in (pair, group)), "SXM modules are always joined"
    bridged = nccl(parse_cluster("2xH100-NVL"))
    assert bridged.low == 2 * 12 * MIB < bridged.expected
    assert nccl(parse_cluster("1xA100-80GB")).high == 0


def test_trees_may_have_other_neighbours_than_the_ring_as_many_as_the_node_holds() -> None:
    """544 MiB were measured on a pair (NVIDIA/nccl issue 964), 256 of them beside its 24 channels."""
    high = {count: nccl(parse_cluster(f"{count}xA100-80GB")).high for count in (2, 4, 8)}
    assert high[2] == 544 * MIB
    assert high[4] == (3 * 24 * 12 + 256) * MIB
    assert high[8] == (5 * 24 * 12 + 256) * MIB
