"""Step times told without one source: what is left out, and what comes back."""

import pytest

from benchmarks.accuracy.speed.sources import WITHOUT, left_out, page, sources, tables_of, told_without
from gpu_plan.planner.hardware.catalog import load_gpus
from gpu_plan.planner.speed.rates import efficiency_data, matmul_share, memory_rate


def test_without_a_table_the_other_ones_tell_a_device() -> None:
    """Products of a training step on an A100: by its own kind 0.94 of bursts, by a B200's 0.748."""
    gpu = load_gpus()["a100-sxm-80"]
    before = matmul_share(gpu, "bfloat16").expected
    with left_out("simumax-a100"):
        assert matmul_share(gpu, "bfloat16").expected == pytest.approx(245.0 / 312 * 0.748)
    assert matmul_share(gpu, "bfloat16").expected == before == pytest.approx(245.0 / 312 * 0.94)


def test_what_a_source_says_of_one_device_is_left_out_alone() -> None:
    names = sources("a100-sxm-80")
    assert "device-copies of a100-sxm-80" in names
    assert "device-copies" in names
    assert not any(" of " in name for name in sources())
    a100, h100 = load_gpus()["a100-sxm-80"], load_gpus()["h100-sxm-80"]
    before = memory_rate(h100).expected
    with left_out("device-copies of a100-sxm-80"):
        assert memory_rate(h100).expected == before
        assert "A100-PCIe" not in memory_rate(a100).note
        assert memory_rate(a100).basis == "source"
    assert memory_rate(a100).basis == "measured"


def test_what_nothing_stands_in_for_stays() -> None:
    assert tables_of("host-operators") == ()
    kinds = [row["kind"] for row in efficiency_data()["issuing"]]
    with left_out("host-operators"):
        assert [row["kind"] for row in efficiency_data()["issuing"]] == kinds


def test_figures_are_of_the_rows_that_a_source_touches() -> None:
    def told() -> tuple[float, float, float]:
        seconds = 1 / matmul_share(load_gpus()["a100-sxm-80"], "bfloat16").expected
        return seconds, seconds / 2, seconds * 2

    predicted, low, high = told()
    line = {
        "id": "a",
        "measured": predicted,
        "predicted": predicted,
        "low": low,
        "high": high,
        "ratio": 1.0,
        "inside": True,
    }
    line[WITHOUT] = told_without(("simumax-a100", "llmservingsim"), told)
    text = page([line, {**line, WITHOUT: {}}])
    assert "| simumax-a100 | waiting, training, accumulating, bandwidth, intra | 1 | 0.0% → 25.7% |" in text
    assert "No row's time changes without: llmservingsim." in text
    assert " assumed, aws-p5, " in text.partition("Nothing else says what these say:")[2]


def test_a_source_without_which_nothing_follows_is_named() -> None:
    def told() -> tuple[float, float, float]:
        return (matmul_share(load_gpus()["a100-sxm-80"], "bfloat16").expected,) * 3

    assert told_without(("aiconfigurator",), told) == {"aiconfigurator": []}


def test_what_other_rooms_keep_is_left_to_them() -> None:
    gpu = load_gpus()["a100-sxm-80"]
    with left_out("simumax-a100"):
        assert load_gpus()["a100-sxm-80"] is gpu
    assert load_gpus()["a100-sxm-80"] is gpu
