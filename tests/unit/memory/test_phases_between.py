"""What stands between updates, laid behind a training stream: the worst phase decides, and all is given back."""

import numpy as np

from gpu_plan.planner.memory.phases import Between, Standing, gathered_bytes, with_phases
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.trace.events import Category
from tests.support.tiny_trace import tiny_trace


def _stream():
    builder = StreamBuilder(tiny_trace([(4, 8), (8,)]), 1)
    builder.alloc(builder.at_load(), 4096, Category.PARAMETERS, "weights")
    return builder.build()


def _phase(phase: Phase, *sizes: int) -> Between:
    return Between(
        phase=phase,
        standing=tuple(Standing(nbytes=size, category=Category.KV_CACHE, label="cache") for size in sizes),
    )


def test_a_small_phase_changes_no_peak_and_a_large_one_decides() -> None:
    stream = _stream()
    plain = measure(stream, 1)
    small = measure(with_phases(stream, [_phase(Phase.SCORING, 512)]), 1)
    assert small.peak_allocated_bytes == plain.peak_allocated_bytes
    assert small.phase_peaks[Phase.SCORING] < plain.peak_allocated_bytes
    large = measure(with_phases(stream, [_phase(Phase.SCORING, 512), _phase(Phase.ROLLOUT, 2**20, 2**20)]), 1)
    assert large.phase_of_peak is Phase.ROLLOUT
    rest = small.phase_peaks[Phase.SCORING] - 512
    assert large.peak_allocated_bytes == large.phase_peaks[Phase.ROLLOUT] == rest + 2**21
    assert large.at_peak[Category.KV_CACHE] == 2**21
    assert large.at_rest_bytes == plain.at_rest_bytes
    assert all(large.phase_peaks[phase] == peak for phase, peak in plain.phase_peaks.items())


def test_two_passes_of_one_phase_are_one_peak() -> None:
    found = with_phases(_stream(), [_phase(Phase.SCORING, 1024), _phase(Phase.SCORING, 8192), _phase(Phase.SYNC)])
    assert len(found.between) == 2  # of nothing nothing is laid out
    alone = with_phases(_stream(), [_phase(Phase.SCORING, 8192)])
    assert measure(found, 1).phase_peaks == measure(alone, 1).phase_peaks
    assert int(np.cumsum(found.event_sign * found.sizes(1)[found.event_tensor])[-1]) == found_rest(alone)


def found_rest(stream) -> int:
    return int(stream.live(1)[-1])


def test_what_forward_gathers_is_what_it_holds_beyond_the_rest() -> None:
    stream = _stream()
    assert gathered_bytes(stream, 1) == 0
