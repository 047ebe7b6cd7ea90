"""Device memory in use: which term is known how well."""

from dataclasses import replace

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.overheads import Term, cached_blocks, nccl
from gpu_plan.planner.memory.profile import PeakDetails, known
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.search.device_use import DeviceUse, Simulated, simulated
from gpu_plan.planner.trace.events import CATEGORIES, Category
from gpu_plan.planner.units import GIB, MIB
from tests.support.tiny_trace import tiny_trace


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


def test_a_run_that_fills_its_device_shows_no_more_than_the_device_has() -> None:
    """The more lies outside the allocator, the less is left for it: both high ends are never there at once."""
    filled = Simulated(
        reserved_bytes=20 * GIB, reserved_under_pressure=16 * GIB, retries=4, extremes=lambda: (15 * GIB, 16 * GIB)
    )
    found = replace(use(filled, capacity=16 * GIB + MIB), device_bytes=16 * GIB + 2 * MIB)
    assert found.used_high_bytes == 16 * GIB + 2 * MIB
    assert found.used_bytes == found.capacity_bytes, "what nobody can use stays free"
    assert replace(found, device_bytes=None).used_high_bytes == 16 * GIB + 3 * MIB
    assert replace(found, device_bytes=GIB).used_high_bytes == found.used_low_bytes == 15 * GIB + MIB


def iterations(*sizes: int) -> RankStream:
    """In every step of the optimizer blocks come and go one after the other, each of a stream of its own."""
    builder = StreamBuilder(tiny_trace([(64, 4)] * 2, element_bytes=4), 1)
    for iteration in range(2):
        for stream, size in enumerate(sizes):
            builder.transient(builder.at_step(iteration), size, Category.TEMPORARY, "scratch", cuda_stream=stream)
    return builder.build()


def test_memory_given_back_in_every_iteration_comes_back_to_its_peak_or_misses_the_room_by_what_was_refused() -> None:
    """40 MiB, then 50, in 70: each time the other goes first. The peak is 50, and the least that was refused 40."""
    found = pressed(iterations(50 * MIB, 40 * MIB), 70 * MIB + SMALL + TERM.low, TERM)
    assert found.retries > 1
    assert found.extremes is not None
    least, most = found.extremes()
    assert most == 50 * MIB + SMALL
    assert least == 70 * MIB + SMALL - 40 * MIB


def test_where_every_possible_schedule_keeps_more_than_there_is_room_for_the_room_is_kept() -> None:
    """The allocator waits for the device in each; what ran first is no bound of those that the seconds leave."""
    term = cached_blocks(6 * GIB, 8 * GIB, 9 * GIB, 7 * GIB, pressed=False)
    assert (term.low, term.expected, term.high) == (7 * GIB, 7 * GIB, 7 * GIB)
    term = cached_blocks(6 * GIB, 8 * GIB, 9 * GIB, 5 * GIB, pressed=False)
    assert (term.low, term.expected, term.high) == (6 * GIB, 6 * GIB, 6 * GIB)


def test_what_is_cached_never_grows_beyond_the_device() -> None:
    term = cached_blocks(2 * GIB, 2 * GIB, 9 * GIB, 5 * GIB, pressed=False)
    assert (term.low, term.expected, term.high) == (2 * GIB, 2 * GIB, 5 * GIB)


def test_two_gpus_are_each_others_only_neighbour() -> None:
    """A ring's buffers serve the trees of a pair as well; of more than two GPUs they double."""
    pair, group = nccl(parse_cluster("2xA100-80GB")), nccl(parse_cluster("4xA100-80GB"))
    assert pair.expected - 256 * MIB == 24 * 12 * MIB
    assert group.expected - pair.expected == 24 * 12 * MIB
    bridged = nccl(parse_cluster("2xH100-NVL"))
    assert bridged.low == (2 * 12 + 60) * MIB < bridged.expected
    assert nccl(parse_cluster("1xA100-80GB")).high == 0


def test_what_is_beside_connections_is_what_was_measured_on_another_machine() -> None:
    """NVIDIA/nccl issue 964: 544 MiB on a pair of A100, 688 on the first of four, a chain's end of three connections of
    6 MiB a channel; 256 in both stand beside, give or take what NCCL's code has grown."""
    pair, four = nccl(parse_cluster("2xA100-80GB"), (2, 18)), nccl(parse_cluster("4xA100-80GB"), (2, 18))
    assert 688 - 3 * 6 * 24 == 544 - 2 * 6 * 24 == 256
    for term, connections in ((pair, 288), (four, 576)):
        assert term.expected == (connections + 256) * MIB
        assert term.low == term.expected - 14 * MIB
    assert pair.high == (288 + 256 + 8) * MIB


def test_trees_are_connected_unasked_only_before_nccl_2_22() -> None:
    """init.cc: RUNTIME_CONNECT. A ring alone has one connection to receive on and one to send."""
    machine = parse_cluster("4xA100-80GB")
    older, newer = nccl(machine, (2, 21)), nccl(machine, (2, 22))
    assert older.low - newer.low == 24 * 12 * MIB
    assert (older.expected, older.high) == (newer.expected, newer.high)
    two = parse_cluster("2xA100-80GB")
    assert nccl(two, (2, 21)) == nccl(two, (2, 22))


def test_trees_may_have_other_neighbours_than_the_ring_as_many_as_the_node_holds() -> None:
    high = {count: nccl(parse_cluster(f"{count}xA100-80GB")).high for count in (2, 4, 8)}
    assert high[4] - high[2] == 2 * 24 * 12 * MIB
    assert high[8] - high[2] == 4 * 24 * 12 * MIB


# -- verdicts: 10 GiB of tensors, a context of 1, 2 or 3 MiB -------------------------------------------------------

PLAIN = Simulated(reserved_bytes=12 * GIB, reserved_under_pressure=11 * GIB, retries=1)


@pytest.mark.parametrize(
    ("capacity", "verdict"),
    [
        (12 * GIB + 3 * MIB, "fits"),
        (12 * GIB + 3 * MIB - 1, "tight"),
        (12 * GIB + 2 * MIB, "tight"),
        (11 * GIB + MIB, "tight"),
        (11 * GIB + MIB - 1, "no"),
    ],
    ids=["filled to the byte", "a byte too few", "what is expected", "under pressure", "not even then"],
)
def test_the_high_end_fits_or_the_low_end_decides(capacity: int, verdict: str) -> None:
    assert use(PLAIN, capacity).verdict == verdict


def test_a_run_that_ends_out_of_memory_does_not_fit_whatever_its_low_end() -> None:
    dies = replace(PLAIN, reserved_under_pressure=None)
    found = use(dies, 12 * GIB + 2 * MIB)
    assert found.low_bytes < found.capacity_bytes
    assert found.verdict == "no"


def test_what_a_cpu_rank_moves_to_the_host_stays_on_its_device() -> None:
    apart = replace(use(PLAIN, 14 * GIB), host_bytes=5 * GIB)
    shared = replace(apart, shares_host=True)
    assert (apart.verdict, shared.verdict) == ("fits", "no")
    assert shared.expected_bytes == 17 * GIB + 2 * MIB
    assert shared.low_bytes == 16 * GIB + MIB


# -- simulated under the capacity ----------------------------------------------------------------------------------

SMALL = 2 * MIB
"""What the traced step takes: one segment of small blocks."""


def loading(*sizes: int, kept: int) -> RankStream:
    """While it loads blocks come and go together; then one comes that stays. The step itself takes next to nothing."""
    builder = StreamBuilder(tiny_trace([(64, 4)] * 2, element_bytes=4), 1)
    for handle in [builder.alloc(builder.at_load(), size, Category.TEMPORARY, "read") for size in sizes]:
        builder.free(builder.at_load(), handle)
    builder.alloc(builder.at_load(), kept, Category.PARAMETERS, "kept")
    return builder.build()


def pressed(stream: RankStream, capacity: int, term: Term) -> Simulated:
    asked = replace(use(PLAIN, capacity), terms=(term,), simulated=None)
    found = simulated(asked, stream, 1, caches=True)[0].simulated
    assert found is not None
    return found


TERM = Term(name="context", low=10 * MIB, expected=30 * MIB, high=40 * MIB, basis="measured", source="test")


def test_under_pressure_there_is_room_for_what_the_least_of_the_rest_leaves() -> None:
    """30 MiB are cached when 60 are asked for: both stand beside 10 MiB in 102, in 99 the 30 are given back."""
    stream = loading(30 * MIB, kept=60 * MIB)
    enough, less = (pressed(stream, capacity, TERM) for capacity in (92 * MIB + TERM.low, 89 * MIB + TERM.low))
    assert enough.reserved_bytes == less.reserved_bytes == 90 * MIB + SMALL
    assert (enough.retries, enough.reserved_under_pressure) == (0, 90 * MIB + SMALL)
    assert (less.retries, less.reserved_under_pressure) == (1, 60 * MIB + SMALL)


def test_memory_given_back_once_while_starting_is_not_taken_again() -> None:
    """40 and 50 MiB are cached when 70 are asked for: what stays is the 70, however much there was before."""
    found = pressed(loading(40 * MIB, 50 * MIB, kept=70 * MIB), 110 * MIB, TERM)
    assert (found.retries, found.reserved_under_pressure) == (1, 90 * MIB)
    assert found.extremes is not None
    assert found.extremes() == (70 * MIB + SMALL, 70 * MIB + SMALL)
