"""Intervals of device memory without what a group's own rows say of the context."""

from typing import Any

from benchmarks.accuracy.left_out import bounds_of, context_of, device_intervals
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.overheads import cuda_context
from gpu_plan.planner.units import MIB
from tests.accuracy.committed import lines_of

CONTEXT = cuda_context(parse_cluster("1xA100-80GB"))
HELD = 10_000 * MIB


def row(group: str, beside: int, cached: int = 0, gpus: str = "1xA100-80GB") -> dict[str, Any]:
    """A run that holds 10,000 MiB, up to `cached` more, and shows `beside` bytes beyond the 10,000."""
    low, high = HELD + CONTEXT.low, HELD + cached + CONTEXT.high
    return {
        "group": group,
        "gpus": gpus,
        "measured_device": HELD + beside,
        "device_low": low,
        "device_high": high,
        "capacity": 80_000 * MIB,
        "device_inside": low <= HELD + beside <= high,
    }


def test_a_row_bounds_the_context_by_the_ends_of_everything_else() -> None:
    assert bounds_of(row("a", 600 * MIB)) == (600 * MIB, 600 * MIB)
    assert bounds_of(row("a", 600 * MIB, cached=200 * MIB)) == (400 * MIB, 600 * MIB)


def test_the_context_is_the_narrowest_that_leaves_the_other_rows_possible() -> None:
    others = [row("b", 700 * MIB), row("b", 900 * MIB, cached=400 * MIB), row("c", 1000 * MIB)]
    assert context_of(row("a", 0), others) == (700 * MIB, 1000 * MIB)
    wide = [row("b", 900 * MIB, cached=400 * MIB), row("b", 800 * MIB, cached=400 * MIB)]
    assert context_of(row("a", 0), wide) == (500 * MIB, 800 * MIB), "any point of it would do; none is chosen"
    assert context_of(row("a", 0, gpus="1xH100"), others) is None


def test_each_group_is_judged_by_the_others() -> None:
    lines = [row("a", 600 * MIB), row("a", 1500 * MIB), row("b", 500 * MIB), row("b", 1000 * MIB), {"group": "c"}]
    found = device_intervals(lines)
    assert (found["n"], found["inside"]) == (4, 4)
    assert found["left_out"] == {"inside": 2, "groups": {"a": {"n": 2, "inside": 1}, "b": {"n": 2, "inside": 1}}}
    context = (CONTEXT.high - CONTEXT.low) / (80_000 * MIB)
    assert found["width"] == {"median": context, "p90": context, "worst": context}
    assert found["narrow"] == 4
    assert found["wide"] == {}
    assert device_intervals([])["width"] == {"median": None, "p90": None, "worst": None}


def test_a_wide_interval_says_which_part_is_how_wide() -> None:
    wide = row("a", 600 * MIB, cached=4000 * MIB) | {"id": "tm-1"}
    wide["device_parts"] = {"NCCL": (MIB, 801 * MIB), "cached blocks": (0, 4000 * MIB)}
    found = device_intervals([wide, row("b", 600 * MIB)])
    assert found["wide"] == {"tm-1": {"cached blocks": 0.05, "NCCL": 0.01}}


def test_a_run_that_fills_its_device_says_nothing_of_the_context_and_needs_none() -> None:
    filled = row("a", 5000 * MIB) | {
        "id": "tm-1",
        "device_filled": True,
        "device_high": HELD + 6000 * MIB,
        "device_inside": True,
    }
    plain = row("b", 600 * MIB)
    assert context_of(plain, [filled]) is None
    assert device_intervals([filled, plain, row("c", 600 * MIB)])["left_out"]["inside"] == 3


def test_the_committed_rows_are_inside_in_nineteen_of_twenty() -> None:
    found = device_intervals(lines_of("memory"))
    assert found["n"] == 61
    assert found["left_out"]["inside"] >= 0.95 * found["n"]
