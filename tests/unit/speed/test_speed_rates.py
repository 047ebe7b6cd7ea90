"""Published rates: every row has a source, every device gets sensible numbers, kin stand in for who has none."""

import math
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from gpu_plan.planner.hardware.catalog import find_gpu, load_gpus
from gpu_plan.planner.speed import collectives, rates
from gpu_plan.planner.speed.attention import attention_share, backward_blocks, backward_over_forward, waited_flops
from gpu_plan.planner.speed.host import Issuing, host_operator_seconds

GPUS = load_gpus()


def _rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for value in document.values() if isinstance(value, list) for row in value]


@pytest.mark.parametrize("document", [rates.efficiency_data(), collectives.collectives_data()])
def test_every_value_names_a_source_that_is_spelled_out(document: dict[str, Any]) -> None:
    rows = _rows(document)
    assert len(rows) > 50
    tables = [value for key, value in document.items() if isinstance(value, dict) and key != "sources"]
    named = [row["source"] for row in rows]
    named += [value for table in tables for key, value in table.items() if key.endswith("source")]
    assert len(named) >= len(rows) + len(tables)
    assert all(name == "assumed" or len(document["sources"][name]) > 15 for name in named)
    assert set(document["sources"]) <= set(named), "a source that nothing cites"


def test_rows_name_shipped_gpus_with_the_facts_they_are_divided_by() -> None:
    data = rates.efficiency_data()
    for row in data["matmul"]:
        assert GPUS[row["gpu"]].peak_flops[row["dtype"]] > 0
    for row in data["bandwidth"]:
        assert (GPUS[row["gpu"]].bandwidth_bytes_per_s or 0) > row["gb_per_s"] * 1e9
    for row in data["streaming"]:
        slow, expected, fast = row["gb_per_s"]
        assert 0 < slow <= expected <= fast < (GPUS[row["gpu"]].bandwidth_bytes_per_s or 0) / 1e9
    for row in data["attention"]:
        lengths = [length for length, _ in row["seq_tflops"]]
        assert lengths == sorted(lengths)
        assert max(rate for _, rate in row["seq_tflops"]) * 1e12 < GPUS[row["gpu"]].peak_flops["bfloat16"]


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_every_host_has_ordered_times_and_strided_copies_a_rate_or_none(gpu: Any) -> None:
    for issuing in Issuing:
        rate = host_operator_seconds(gpu, issuing)
        assert 1e-6 < rate.fast <= rate.expected <= rate.slow < 1e-4
    strided = rates.strided_rate(gpu)
    known = "float32" in gpu.peak_flops and (gpu.compute_capability or (0, 0)) >= (7, 0)
    assert (strided is not None) == known
    assert strided is None or 1e10 < strided.slow <= strided.expected <= strided.fast < 1e13


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e4m3fn"])
def test_bounds_are_ordered_and_positive_on_every_device(gpu: Any, dtype: str) -> None:
    attention = attention_share(gpu, kernel="cudnn", direction="backward", causal=True, seq_len=4096)
    for rate in (
        rates.usable_peak(gpu, dtype), rates.matmul_share(gpu, dtype), rates.memory_rate(gpu), attention
    ):  # fmt: skip
        assert 0 < rate.slow <= rate.expected <= rate.fast < math.inf
        assert rate.basis in ("measured", "source", "assumed")


def test_own_rows_of_bursts_are_taken_with_what_a_training_step_keeps_of_them() -> None:
    share = rates.matmul_share(find_gpu("H100"), "bfloat16")
    assert share.expected == pytest.approx(720.8 / 989.5 * (0.94 + 0.748) / 2)
    assert share.fast == pytest.approx(794.5 / 989.5)
    assert share.slow == pytest.approx(720.8 / 989.5 * 0.748)
    assert share.basis == "source"
    a100 = rates.matmul_share(find_gpu("A100-80GB"), "bfloat16")
    assert a100.expected == pytest.approx(245.0 / 312 * 0.94)
    assert a100.slow == pytest.approx(245.0 / 312 * 0.94 * 0.87)


def test_a_step_on_the_device_that_was_measured_is_told_by_its_own_products() -> None:
    assert rates.matmul_share(find_gpu("A100-PCIe-80GB"), "bfloat16").expected == pytest.approx(0.739)
    assert rates.matmul_share(find_gpu("B200"), "bfloat16").expected == pytest.approx(0.492)


def test_adding_to_a_buffer_costs_as_much_on_both_measured_devices() -> None:
    """SimuMax's tables: 0.949 on an A100 PCIe, 0.944 on a B200."""
    share = rates.accumulating_share()
    assert (share.slow, share.expected, share.fast) == pytest.approx((0.835, (0.949 + 0.944) / 2, 1.0))


def test_arithmetic_and_traffic_delay_each_other_where_neither_is_much_longer() -> None:
    arithmetic, traffic = np.array([1.0, 1.0, 10.0]), np.array([1.0, 1.0, 1.0])
    grouped = np.array([False, True, False])
    told = rates.beside_each_other(arithmetic, traffic, grouped)
    assert told == pytest.approx([2 ** (1 / 3), 2 ** (1 / 1.375), 10.0], rel=1e-3)
    assert rates.beside_each_other(arithmetic, traffic, grouped, slow=True)[1] == pytest.approx(2.0)


def test_few_heads_wait_for_their_last_blocks() -> None:
    """H100: 0.55 blocks on 132 multiprocessors, each 128 queries beside 4,096 keys, twice a causal mean."""
    gpu = find_gpu("H100")
    asked = {"kernel": "cudnn", "direction": "forward", "causal": True, "seq_len": 4096, "head_dim": 128}
    slow, expected, fast = waited_flops(gpu, **asked)
    assert expected == pytest.approx(0.55 * 132 * 2 * 4 * 128 * 4096 * 128)
    assert fast < expected < slow
    eight = 4 * 8 * 4096**2 * 128
    assert eight / (eight + expected) == pytest.approx(0.64, abs=0.01)  # measured: 273 of 445 TFLOP/s
    assert waited_flops(gpu, **{**asked, "causal": False})[1] == expected / 2
    assert waited_flops(gpu, **{**asked, "seq_len": 1}) == (0.0, 0.0, 0.0)
    # Nothing was measured on its like: expected none, at most what others wait for.
    assert waited_flops(find_gpu("MI300X"), **asked)[1:] == (0.0, 0.0)


def test_backward_waits_as_it_does_beside_forward_elsewhere() -> None:
    gpu = find_gpu("H100")
    asked = {"kernel": "cudnn", "causal": True, "seq_len": 4096, "head_dim": 128}
    ahead, back = (waited_flops(gpu, direction=direction, **asked)[1] for direction in ("forward", "backward"))
    assert back / ahead == pytest.approx(2.5 * np.median(backward_blocks()))


def test_a_collective_takes_at_most_its_multiprocessors() -> None:
    taken = rates.collective_sm_share(find_gpu("H100"))
    assert (taken.slow, taken.expected, taken.fast) == pytest.approx((32 / 132, 16 / 132, 0.0))


def test_without_rows_the_architectures_median_stands_in_and_says_so() -> None:
    share = rates.matmul_share(find_gpu("A30"), "bfloat16")
    assert share.basis == "source"
    assert "median of 5 ampere devices" in share.note
    measured = ("a100-sxm-80", "a100-pcie-80", "rtx-a6000", "rtx-a5000", "a10g")
    kin = [rates.matmul_share(GPUS[gpu_id], "bfloat16") for gpu_id in measured]
    bursts = median(rates.burst_share(GPUS[gpu_id]).expected for gpu_id in measured)
    assert share.expected == pytest.approx(bursts * 0.94)
    assert share.slow == min(one.slow for one in kin)


def test_an_architecture_without_any_rows_is_assumed() -> None:
    share = rates.matmul_share(find_gpu("Quadro-RTX-6000"), "float16")
    assert share.basis == "assumed"
    assert share.fast <= 1.0


def test_a_user_gpu_of_a_known_architecture_gets_its_kins_rates() -> None:
    own = replace(find_gpu("H100"), id="mine", short="mine")
    assert rates.matmul_share(own, "bfloat16").basis == "source"


def test_bf16_on_a_device_without_it_runs_at_the_float32_peak() -> None:
    t4 = find_gpu("T4")
    peak = rates.usable_peak(t4, "bfloat16")
    assert peak.expected == t4.peak_flops["float32"]
    assert "emulates" in peak.note
    assert rates.published_peak(t4, "bfloat16") is None


def _of_many(head_dim: int, causal: bool = True) -> float:
    """Rate of many heads over that of A100's chart, whose calls wait for 0.38 blocks on 108 multiprocessors."""
    return 1 + 0.38 * 108 * (2 if causal else 1) * 128 * head_dim / (16384 * 2048)


def test_attention_goes_by_head_size_pass_and_generation() -> None:
    def share(gpu: str, kernel: Any = "flash", direction: Any = "forward", head_dim: int = 128) -> float:
        found = attention_share(
            find_gpu(gpu), kernel=kernel, direction=direction, causal=True, seq_len=4096, head_dim=head_dim
        )
        return found.expected

    assert share("A100-80GB", head_dim=64) == pytest.approx(156 / 312 * _of_many(64))
    assert share("H100", "cudnn", head_dim=64) < 0.75 * share("H100", "cudnn")
    assert share("H100", "flash1") == pytest.approx(0.5 * share("H100", "flash"))
    assert share("H100", "flash") < share("H100", "cudnn") < share("H100", "flash3")
    assert share("B200", "cudnn", head_dim=64) < share("B200", "cudnn")
    back, ahead = share("L40S", direction="backward"), share("L40S")
    assert back == pytest.approx(ahead * backward_over_forward()[1])


def test_attention_follows_the_published_table() -> None:
    a100 = find_gpu("A100-80GB")

    def rate(seq_len: int, causal: bool = True) -> float:
        share = attention_share(a100, kernel="flash", direction="forward", causal=causal, seq_len=seq_len)
        return share.expected * 312

    assert rate(4096) == pytest.approx(173 * _of_many(128))
    assert rate(4096, causal=False) == pytest.approx(196 * _of_many(128, causal=False))
    assert rate(512) == pytest.approx(rate(64)) == pytest.approx(99 * _of_many(128))
    assert rate(2048) < rate(3000) < rate(4096)


def test_a_card_that_its_power_caps_tells_nothing_of_its_architecture() -> None:
    """NVIDIA on a T4: about 24 of 65 TFLOP/s under continuous products, by its 70 W."""
    t4, other = GPUS["t4"], GPUS["quadro-rtx-6000"]
    share = rates.matmul_share(t4, "float16")
    assert share.expected < share.fast < 0.5
    assert share.slow * t4.peak_flops["float16"] < 24e12 < share.fast * t4.peak_flops["float16"]
    assert other.architecture == t4.architecture
    assert rates.matmul_share(other, "float16").expected > 0.5


def test_tensor_cores_that_are_halved_reach_their_peak_whatever_the_architecture() -> None:
    """Best products of GeForce and L40: 0.94 to 1.10 of it."""
    share = rates.burst_share(GPUS["rtx-5090"])
    known = rates.complete_shares("16-bit")
    halved = ("rtx-3090", "rtx-4090", "l40")
    assert share.expected == pytest.approx(median(known[gpu_id][1] for gpu_id in halved))
    assert share.basis == "source"
    assert "3 devices whose tensor cores are halved alike" in share.note
    catalog, errors, before = rates.load_gpus(), [], []
    for gpu_id in halved:
        own = known[gpu_id][1]
        others = [known[other][1] for other in halved if other != gpu_id]
        kin = [
            known[other][1]
            for other in known
            if other != gpu_id and catalog[other].architecture == catalog[gpu_id].architecture
        ]
        errors.append(abs(median(others) / own - 1))
        before.append(abs(median(kin) / own - 1))
    assert sum(errors) / 3 < 0.11 < 0.2 < sum(before) / 3
    assert rates.products_of(GPUS["a10"], "16-bit").keys().isdisjoint(halved)


def test_newer_consumer_cards_are_not_slower_than_older_ones_by_their_kin() -> None:
    def products(gpu_id: str) -> float:
        return rates.matmul_share(GPUS[gpu_id], "bfloat16").expected * GPUS[gpu_id].peak_flops["bfloat16"]

    assert products("rtx-5090") > products("rtx-4090") > products("rtx-3090") > products("rtx-3080")
