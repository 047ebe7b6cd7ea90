"""The least time of a step in stages, against schedules that are run."""

import itertools

import pytest

from gpu_plan.planner.pipeline.schedules import Kind, Schedule, actions
from gpu_plan.planner.pipeline.timeline import run
from gpu_plan.planner.search.training.least.stages import shortest


@pytest.mark.parametrize(
    ("schedule", "local"), [(Schedule.ONE_F_ONE_B, 1), (Schedule.GPIPE, 1), (Schedule.INTERLEAVED, 2)]
)
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 2), (2, 8), (4, 4), (4, 16)])
def test_no_cut_is_faster(schedule: Schedule, local: int, ranks: int, micro_batches: int) -> None:
    """Over cuts of all kinds, uneven ones too."""
    orders = [actions(schedule, rank, ranks, local, micro_batches) for rank in range(ranks)]
    every = 1 if local == 1 else 97
    for lengths in itertools.islice(itertools.product((0.5, 1.0, 1.5), repeat=ranks * local), 0, None, every):
        seconds = {
            (kind, stage): share * length
            for stage, length in enumerate(lengths)
            for kind, share in ((Kind.FORWARD, 1 / 3), (Kind.BACKWARD, 2 / 3))
        }
        least = shortest(ranks, micro_batches, local, sum(lengths))
        assert run(orders, seconds).seconds >= least * (1 - 1e-9)


def test_it_is_more_than_an_even_share() -> None:
    """Even stages take 3 x (m + p - 1) / p; a share alone would be 3 x m / p."""
    assert shortest(4, 8, 1, 3.0) > 1.2 * 3.0 * 8 / 4
    assert shortest(4, 8, 1, 3.0) < 3.0 * (8 + 3) / 4
    assert shortest(4, 8, 2, 3.0) == 3.0 * 8 / 4
