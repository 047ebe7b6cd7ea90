"""The least that a caching allocator reserves: what each pool holds at its own worst moment."""

import numpy as np
from hypothesis import given, settings

from gpu_plan.planner.memory.allocator.pools import least_reserved
from gpu_plan.planner.memory.allocator.replay import AllocatorSettings, replay
from gpu_plan.planner.units import MIB
from tests.unit.memory.test_allocator_properties import Run, runs


def test_pools_peak_apart() -> None:
    """As the logits of a step and the gradients behind them, which another stream made: each is gone when the other is
    there, and neither can use the other's segments."""
    signs, tensors = np.array([1, -1, 1, -1]), np.array([0, 0, 1, 1])
    sizes, streams = np.array([60 * MIB, 40 * MIB]), np.array([0, 1])
    assert least_reserved(signs, tensors, sizes, streams) == 100 * MIB
    grown = AllocatorSettings(expandable_segments=True)
    assert replay(signs, tensors, sizes, streams, settings=grown).peak_reserved_bytes == 100 * MIB
    assert replay(signs, tensors, sizes, streams, settings=grown).peak_allocated_bytes == 60 * MIB
    assert least_reserved(signs, tensors, sizes, np.zeros(2, dtype=np.int64)) == 60 * MIB


def test_small_blocks_have_pools_of_their_own() -> None:
    signs, tensors, streams = np.array([1, -1, 1]), np.array([0, 0, 1]), np.zeros(2, dtype=np.int64)
    assert least_reserved(signs, tensors, np.array([MIB, 2 * MIB]), streams) == 3 * MIB
    assert least_reserved(signs, tensors, np.array([2 * MIB, 2 * MIB]), streams) == 2 * MIB


@given(run=runs())
@settings(deadline=None)
def test_no_simulation_reserves_less(run: Run) -> None:
    sizes = (run.sizes + 511) & -512
    least = least_reserved(run.signs, run.tensors, sizes, run.streams)
    for expandable in (False, True):
        found = run.replay(settings=AllocatorSettings(expandable_segments=expandable))
        assert found.peak_reserved_bytes >= least >= found.peak_allocated_bytes - MIB * len(sizes)
