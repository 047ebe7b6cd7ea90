"""Peaks by phase: what a counter reads that is reset when the phase begins."""

import numpy as np
import pytest

from gpu_plan.planner.memory.profile import measure, phase_at
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.workload.training import Optimizer
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

SHAPES = [(100, 4), (50, 4), (25, 4)]
NUMEL = 700
TRACE = tiny_trace(SHAPES, element_bytes=4)


def counted(stream: RankStream) -> dict[Phase, int]:
    """Event by event: the level at every entry counts, and every level after it."""
    sizes, level, phase = stream.sizes(1), 0, Phase.LOAD
    peaks = {Phase.LOAD: 0}
    for position, (sign, tensor) in enumerate(zip(stream.event_sign, stream.event_tensor, strict=True)):
        found = phase_at(stream, position)
        if found is not phase:
            phase = found
            peaks[phase] = max(peaks.get(phase, 0), level)
        level += int(sign) * int(sizes[tensor])
        peaks[phase] = max(peaks.get(phase, 0), level)
    return peaks


@pytest.mark.parametrize("optimizer", [Optimizer("sgd"), Optimizer("adamw"), Optimizer("adamw-fused")])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_equal_what_is_counted_event_by_event(optimizer: Optimizer, accumulation: int) -> None:
    context = small_context(TRACE, world_size=1, optimizer=optimizer, accumulation_steps=accumulation)
    stream = Single().rank(context).stream
    assert measure(stream, 1).phase_peaks == counted(stream)


def test_a_step_that_only_frees_peaks_where_it_begins() -> None:
    stream = Single().rank(small_context(TRACE, world_size=1, optimizer=Optimizer("sgd"))).stream
    first = int(np.searchsorted(stream.event_segment, stream.step_segments[0]))
    found = measure(stream, 1).phase_peaks[Phase.STEP]
    assert found >= int(stream.live(1)[first - 1]) >= 8 * NUMEL
