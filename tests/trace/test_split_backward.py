"""A last stage whose backward is split in two: what its first half leaves for the second."""

import pytest

from gpu_plan.planner.memory.stream.traced import allocations, carried_storages
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.trace.events import Mark
from tests.support.ranks.piped.case import PipedCase
from tests.support.ranks.piped.replay import trace_of

SCALES = 2 * 2 + 1
"""Two norms of each of a stage's two layers, and the last one; of each one fp32 number a token is kept."""


@pytest.mark.parametrize("ranks", [1, 2])
def test_norms_keep_their_scales_until_the_weights_gradients_are_made(ranks: int) -> None:
    """Where ranks share a head its output is a view: torch lets go of it, not of its graph in place."""
    case = PipedCase(
        architecture="llama-3",
        schedule=Schedule.ZERO_BUBBLE,
        strategy="pp" if ranks == 1 else "tp_pp",
        tensor=ranks,
    )
    trace = trace_of(case, case.cuts[1], halves=True)
    at, sign, subject = allocations(trace)
    size = 4 * case.seq_len
    freed = [
        int(place) for place, how, one in zip(at, sign, subject, strict=True) if how < 0 and _size(trace, one) == size
    ]
    assert sum(place > trace.mark_position(Mark.WEIGHTS) for place in freed) == SCALES
    assert not any(_size(trace, one) == size for one in carried_storages(trace))


def _size(trace: object, tensor: int) -> int:
    return int(trace.bytes_per_sample[tensor])  # type: ignore[attr-defined]
