"""A step of several parameter groups, as torch.optim takes it: one group after the other."""

import numpy as np

from gpu_plan.planner.memory.optimizer.steps import place_update
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor
from gpu_plan.planner.workload.training import Optimizer
from tests.support.tiny_trace import tiny_trace

SIZES = (100, 200, 50, 150)
"""Elements, of which the groups take turns."""


def stepped(*groups: int) -> list[list[int]]:
    """fp32 bytes of state and temporaries after every event of two iterations' steps."""
    builder = StreamBuilder(tiny_trace([(2, 2)]), 1)
    tensors = [
        LocalTensor(name=f"p{at}", numel=size, dtype="float32", group=group)
        for at, (size, group) in enumerate(zip(SIZES, groups, strict=True))
    ]
    for iteration in range(2):
        place_update(builder, iteration, Optimizer("adamw"), tensors)
    stream = builder.build()
    changes = stream.event_sign * stream.requested(1)[stream.event_tensor]
    inside = [stream.event_segment == segment for segment in stream.step_segments]
    before = int(changes[inside[0]].sum())
    return [(start + np.cumsum(changes[one])).tolist() for start, one in zip((0, before), inside, strict=True)]


def test_each_group_has_its_state_and_its_temporaries_in_its_turn() -> None:
    """500 elements of 4 bytes: two moments of each stay; a square root of each of one group stands at a time."""
    together, apart = stepped(0, 0, 0, 0), stepped(0, 7, 0, 7)
    state = 2 * 4 * 500
    assert [max(levels) for levels in together] == [state + 4 * 500] * 2
    assert [levels[-1] for levels in (*together, *apart)] == [state] * 4
    assert max(apart[1]) == state + 4 * (200 + 150), "the larger group's"
    first = 2 * 4 * (100 + 50)
    made = apart[0]
    assert made[made.index(first + 4 * 150) + 1] < made[made.index(first + 4 * 150)], "before the other has any state"
