"""Collectives: volumes by hand, measured curves as published, and what can never happen."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.speed.collectives import call_seconds, group_of, wire_factor
from gpu_plan.planner.speed.in_step import collectives_of
from gpu_plan.planner.speed.model import Collective, CollectiveKind
from tests.support.synthetic_trace import Op, trace_of

DEVICE_KINDS: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
ALL_KINDS: tuple[CollectiveKind, ...] = (*DEVICE_KINDS, "host_to_device", "device_to_host")
SPECS = ("1xH100", "2xH100", "8xH100", "4x8xA100-80GB", "8xL40S", "8xMI300X", "2xT4", "2x8xB200", "72xGB200")
MIB = 1 << 20


def cluster(spec: str) -> Cluster:
    return parse_cluster(spec, ram_bytes=64 << 30)


def moving(kind: CollectiveKind, num_bytes: int, **more: Any) -> Collective:
    return Collective(kind=kind, bytes=num_bytes, phase="backward", per="step", overlap=True, **more)


def test_ring_volumes() -> None:
    assert wire_factor("all_reduce", 8) == 2 * 7 / 8
    assert wire_factor("all_gather", 8) == wire_factor("reduce_scatter", 8) == 7 / 8
    assert wire_factor("broadcast", 8) == 1
    assert [wire_factor(kind, 1) for kind in DEVICE_KINDS] == [0, 0, 0, 0]
    assert wire_factor("host_to_device", 1) == 1


@given(st.sampled_from(DEVICE_KINDS), st.integers(1, 5000), st.integers(1, 5000))
def test_more_ranks_never_send_less(kind: CollectiveKind, ranks: int, more: int) -> None:
    assert wire_factor(kind, ranks) <= wire_factor(kind, ranks + more)


def test_a_tabled_size_takes_the_published_time() -> None:
    time = call_seconds(moving("all_reduce", 536870912), cluster("8xH100"))
    assert time.expected == pytest.approx(2111.06e-6)
    assert time.basis == "measured"
    twice = call_seconds(moving("all_reduce", 2 * 536870912), cluster("8xH100"))
    assert twice.expected == pytest.approx(2 * 2111.06e-6)


def test_small_messages_cost_latency() -> None:
    tiny = call_seconds(moving("all_reduce", 4), cluster("8xH100"))
    assert tiny.expected == pytest.approx(15.59e-6)


def test_without_a_table_the_link_and_the_published_shares_decide() -> None:
    time = call_seconds(moving("all_gather", 310 * 10**6), cluster("2xA100-PCIe-80GB"))
    wire = 155e6 / 31e9
    assert wire / 0.674 < time.fast < time.expected < time.slow < 1e-3 + wire / 0.31
    assert time.basis == "source"
    assert "PCIe" in time.note


def test_nodes_are_bound_by_their_ports() -> None:
    time = call_seconds(moving("all_reduce", 10**10), cluster("4x8xA100-80GB"))
    by_hand = 10**10 * 2 * (31 / 32) / (8 * 25e9 * 0.929)
    assert time.expected == pytest.approx(by_hand, rel=0.01)
    inside = call_seconds(moving("all_reduce", 10**10, ranks=8), cluster("4x8xA100-80GB"))
    assert inside.expected < time.expected


@pytest.mark.parametrize(
    ("nodes", "mib", "busbw"), [(4, 64, 217), (4, 1024, 338), (512, 64, 112), (512, 1024, 286), (1024, 256, 217)]
)
def test_all_reduce_over_many_nodes_is_as_slow_as_published(nodes: int, mib: int, busbw: float) -> None:
    """arXiv 2411.13055 and a GTC scan, read from plots; sizes beside those of the line."""
    time = call_seconds(moving("all_reduce", mib * MIB), cluster(f"{nodes}x8xH100"))
    ranks = nodes * 8
    said = mib * MIB * 2 * (ranks - 1) / ranks / time.expected / 1e9
    assert said == pytest.approx(busbw, rel=0.17)
    assert time.fast <= mib * MIB * 2 * (ranks - 1) / ranks / (busbw * 1e9) <= time.slow


def test_a_ring_waits_for_every_rank_and_an_all_reduce_may_take_a_tree() -> None:
    rates = [64 * MIB / call_seconds(moving("all_gather", 64 * MIB), cluster(f"{n}x8xH100")).expected for n in (4, 512)]
    assert rates[0] > 10 * rates[1]
    summed = call_seconds(moving("all_reduce", 64 * MIB), cluster("512x8xH100")).expected
    assert summed < call_seconds(moving("all_gather", 64 * MIB), cluster("512x8xH100")).expected


def test_a_card_of_pcie_4_may_stand_in_a_board_of_pcie_3() -> None:
    wire = 10**9 / 2
    newer, older = (call_seconds(moving("all_gather", 10**9), cluster(spec)) for spec in ("2xRTX-4090", "2xRTX-2080Ti"))
    assert newer.slow == pytest.approx(wire / (31e9 * 0.31 * 0.25 * 0.5), rel=1e-2)
    assert older.slow == pytest.approx(newer.slow / 2 * 31 / 16, rel=0.05)  # of PCIe 3.0 itself


def test_cards_without_peer_access_pass_through_memory() -> None:
    gamer = call_seconds(moving("all_gather", 10**9), cluster("2xRTX-4090"))
    server = call_seconds(moving("all_gather", 10**9), cluster("2xL40S"))
    assert gamer.expected > 1.9 * server.expected
    assert gamer.slow > 1.9 * gamer.expected
    assert "through RAM" in gamer.note
    assert "through RAM" not in server.note


def test_groups() -> None:
    machines = cluster("4x8xH100")
    whole = group_of(moving("all_reduce", 1), machines)
    assert (whole.ranks, whole.nodes, whole.per_node) == (32, 4, 8)
    shard = group_of(moving("all_reduce", 1, ranks=8), machines)
    assert (shard.ranks, shard.nodes, shard.per_node) == (8, 1, 8)
    replicas = group_of(moving("all_reduce", 1, ranks=4, across_nodes=True), machines)
    assert (replicas.ranks, replicas.nodes, replicas.per_node) == (4, 4, 1)


def test_replicas_across_nodes_use_one_port_each() -> None:
    time = call_seconds(moving("all_reduce", 10**9, ranks=4, across_nodes=True), cluster("4x8xH100"))
    assert time.expected == pytest.approx(10**9 * 1.5 / (50e9 * 0.929), rel=0.01)


def test_host_copies_go_over_the_host_link() -> None:
    h100 = cluster("8xH100")
    time = call_seconds(moving("host_to_device", 10**9), h100)
    assert time.expected == pytest.approx(10**9 / (h100.host_link_bytes_per_s * 0.88))


def test_one_rank_and_no_bytes_take_no_time() -> None:
    assert call_seconds(moving("all_reduce", 10**9), cluster("1xH100")).slow == 0
    assert call_seconds(moving("all_gather", 0), cluster("8xH100")).slow == 0
    assert call_seconds(moving("device_to_host", 10**9), cluster("1xH100")).fast > 0


@settings(deadline=None)
@given(st.sampled_from(ALL_KINDS), st.sampled_from(SPECS), st.integers(1, 1 << 36), st.integers(0, 1 << 36))
def test_more_bytes_are_never_faster(kind: CollectiveKind, spec: str, num_bytes: int, more: int) -> None:
    machines = cluster(spec)
    small = call_seconds(moving(kind, num_bytes), machines)
    large = call_seconds(moving(kind, num_bytes + more), machines)
    assert small.fast <= small.expected <= small.slow
    for one, other in zip(small.bounds, large.bounds, strict=True):
        assert one <= other * (1 + 1e-9)


@pytest.mark.parametrize("kind", DEVICE_KINDS)
def test_more_nodes_are_never_faster(kind: CollectiveKind) -> None:
    seconds = [call_seconds(moving(kind, 64 * MIB), cluster(f"{nodes}x8xH100")).expected for nodes in (1, 2, 4, 32)]
    assert seconds == sorted(seconds)


def test_two_mi300x_share_one_of_seven_links() -> None:
    two = call_seconds(moving("all_reduce", 10**9), cluster("2xMI300X")).expected
    assert 10**9 / (448e9 / 7) < two < 2 * 10**9 / (448e9 / 7)


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="is invalid"):
        moving("all_reduce", -1)


def test_a_collective_of_a_trace_is_as_large_as_what_all_ranks_hold_of_it() -> None:
    """A reduce-scatter writes one rank's part of it, a gather the whole. Two samples, 100 bytes and 10 a sample."""
    written = ((100, 10),)
    trace = trace_of(
        Op(name="reduce_scatter_tensor", phase=1, writes=written),
        Op(name="all_gather_into_tensor", writes=written),
        Op(name="all_gather_into_tensor", writes=written),
        Op(name="all_to_all_single", phase=2, writes=written),
        Op(name="mm", writes=written),
    )
    found = {call.kind: call for call in collectives_of(trace, ranks=4, experts=8, micro_batch=2)}
    assert {kind: (call.bytes, call.count, call.ranks, call.phase) for kind, call in found.items()} == {
        "reduce_scatter": (480, 1, 4, "backward"),
        "all_gather": (120, 2, 4, "forward"),
        "all_to_all": (120, 1, 8, "backward"),
    }


def test_nodes_of_a_rack_are_joined_by_its_switch() -> None:
    """GTC 2025, S72583: 680 GB/s over 32 of an NVL72, 370 over 32 of four DGX H100 without in-network reduction."""
    one = Collective(kind="all_reduce", bytes=2**34, phase="backward", per="step", overlap=True)

    def bus(spec: str, network: float | None = None) -> list[float]:
        made = cluster(spec)
        made = replace(made, gpu=replace(made.gpu, network_bytes_per_s=network or made.gpu.network_bytes_per_s))
        ranks = made.world_size
        return [2 * (ranks - 1) / ranks * one.bytes / s / 1e9 for s in call_seconds(one, made).bounds]

    for spec, published in (("8x4xGB200", 680), ("4x8xH100", 370), ("4x8xA100-80GB", 192)):
        slow, _, fast = bus(spec)
        assert slow < published <= fast * 1.001
    assert bus("18x4xGB200", 3e9)[1] > 2 * bus("72x4xGB200", 3e9)[1], "four racks meet in the network"
    assert bus("18x4xGB200")[1] == pytest.approx(bus("36x4xGB200")[1]), "where each GPU's port is fast enough for it"
    replicas = replace(one, ranks=18, across_nodes=True)
    assert group_of(replicas, cluster("18x4xGB200")).nodes == 1
    assert group_of(replicas, cluster("18x8xH100")).nodes == 18


def on_omni_path(spec: str) -> Cluster:
    """Jean Zay's nodes: four links of 100 Gb/s."""
    told = cluster(spec)
    return replace(told, gpu=replace(told.gpu, network="omni-path", network_bytes_per_s=50e9 / told.gpus_per_node))


@pytest.mark.parametrize(("spec", "ranks", "seconds"), [("4x8xA100-80GB", 32, 1.530), ("4x4xA100-80GB", 16, 1.505)])
def test_one_communicator_takes_one_of_four_links_as_published(spec: str, ranks: int, seconds: float) -> None:
    time = call_seconds(moving("all_reduce", 4 * 10**9, ranks=ranks), on_omni_path(spec))
    assert time.expected == pytest.approx(seconds, rel=0.02)
    assert time.fast <= time.expected <= time.slow


def test_communicators_of_one_device_a_node_share_four_links() -> None:
    """Eight at once over four links of 5 GB/s: 2.5 GB/s each, or 5 where two on one link do not disturb each other."""
    time = call_seconds(moving("all_gather", 4 * 10**9, ranks=4, stride=8), on_omni_path("4x8xA100-80GB"))
    assert time.expected == pytest.approx(3e9 / (12.5e9 * 0.402 / 2), rel=0.02)
    assert time.fast == pytest.approx(3e9 / (12.5e9 * 0.405), rel=0.02)


@pytest.mark.parametrize(
    ("network", "bounds"),
    [
        ("roce", (0.40, 0.58, 0.75)),
        ("infiniband-sharp", (0.97, 1.085, 1.20)),
        ("ethernet", (0.184, 0.475, 0.60)),
        ("efa", (0.954, 0.954, 0.954)),
    ],
)
def test_networks_are_filled_as_published(network: str, bounds: tuple[float, float, float]) -> None:
    told = cluster("4x8xH100")
    named = replace(told, gpu=replace(told.gpu, network=network))
    large = moving("all_reduce", 64 * 10**9, ranks=32)
    wire = 2 * 31 / 32 * large.bytes / (told.inter_node_bytes_per_s * 8)
    time = call_seconds(large, named)
    assert (wire / time.fast, wire / time.expected) == pytest.approx((bounds[2], bounds[1]), rel=0.02)
    assert wire / time.slow < bounds[0], "and a busy fabric beyond it"
    gathered = moving("all_gather", 64 * 10**9, ranks=32)
    narrow, other = (replace(one, gpu=replace(one.gpu, network_bytes_per_s=25e9)) for one in (named, told))
    same = call_seconds(gathered, narrow).expected == call_seconds(gathered, other).expected
    assert same is (network == "infiniband-sharp"), "switches add up all-reduces alone"


def test_clouds_machines_have_their_own_network_unless_another_is_said() -> None:
    """EFA: two tables say that a tree waits 1.4 and 2.9 times as long there (358 us over 2 nodes, 702 over 4)."""
    small, gathered = moving("all_reduce", 2**22, ranks=16), moving("all_gather", 8, ranks=16)
    told = cluster("2xp5.48xlarge")
    said = replace(told, gpu=replace(told.gpu, network="infiniband"))
    assert call_seconds(gathered, told).expected == pytest.approx((164.3e-6 + 69.1e-6) / 2)
    assert call_seconds(gathered, said).expected == call_seconds(gathered, cluster("2x8xH100")).expected
    assert call_seconds(small, told).slow >= call_seconds(small, said).expected


def test_a_tree_of_two_nodes_passes_the_whole_once_each_way() -> None:
    """Published over two nodes of 8 B200, 8 x 50 GB/s: 677 GB/s at 1 GiB; a ring fills 93 % of 400."""

    def bus(spec: str) -> float:
        made = cluster(spec)
        call = moving("all_reduce", 2**30, ranks=made.world_size)
        return 2 * (made.world_size - 1) / made.world_size * call.bytes / call_seconds(call, made).expected / 1e9

    assert bus("2x8xB200") == pytest.approx(677, rel=0.05)
    assert bus("4x8xB200") < 400
    assert bus("2x8xA100-80GB") < 200, "no switch of theirs adds up, and published tables disagree"
    both = moving("all_reduce", 2**32, ranks=16)
    slow, expected, fast = call_seconds(both, cluster("2x8xA100-80GB")).bounds
    assert expected / fast > 1.25, "one of them does"
    assert slow > expected


def test_a_racks_switch_adds_up_what_more_ranks_than_a_tray_send() -> None:
    """NVL72: 850 GB/s with its own reduction, 680 without; the table is of four GB200, which a ring serves."""
    few, many = (cluster(spec) for spec in ("1x4xGB200", "18x4xGB200"))

    def seconds(kind: str, made: Cluster) -> float:
        call = moving(kind, 2**33, ranks=made.world_size)
        return call_seconds(call, made).expected / wire_factor(kind, made.world_size)

    assert seconds("all_reduce", few) / seconds("all_reduce", many) == pytest.approx(1.25)
    assert seconds("all_gather", few) / seconds("all_gather", many) == pytest.approx(1.0)


def test_rails_without_a_spine_lengthen_all_to_alls_alone() -> None:
    """arXiv 2307.12169: 8.2 to 11.2 % for all-to-all traffic."""
    told = cluster("4x8xH100")
    rails = replace(told, gpu=replace(told.gpu, network="rail-only"))
    for kind, times in (("all_to_all", (1.112, 1.097, 1.082)), ("all_reduce", (1.0,) * 3), ("all_gather", (1.0,) * 3)):
        large = moving(kind, 2**36, ranks=32)
        bounds = zip(call_seconds(large, rails).bounds, call_seconds(large, told).bounds, strict=True)
        assert [one / other for one, other in bounds] == pytest.approx(list(times), rel=1e-3)


def test_other_networks_have_all_their_links() -> None:
    told = cluster("4x8xA100-80GB")
    assert told.gpu.network is None
    time = call_seconds(moving("all_reduce", 4 * 10**9, ranks=32), told)
    assert time.expected < 0.1
