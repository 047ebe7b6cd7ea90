"""A pipeline's schedules: each rank's actions, how many micro batches stand, when the step ends. No torch."""

import pytest

from gpu_plan.planner.pipeline.schedules import Action, Kind, Schedule, actions, in_flight, refused
from gpu_plan.planner.pipeline.stages import balanced_cuts, count_layers, even_cuts, of_rank
from gpu_plan.planner.pipeline.timeline import run

F, B = Kind.FORWARD, Kind.BACKWARD


def orders(schedule: Schedule, ranks: int, local: int, micro_batches: int) -> list[tuple[Action, ...]]:
    return [actions(schedule, rank, ranks, local, micro_batches) for rank in range(ranks)]


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 2), (2, 4), (4, 4), (4, 8), (4, 12), (8, 16)])
def test_every_stage_runs_every_micro_batch_once_and_no_rank_waits_for_ever(
    schedule: Schedule, ranks: int, micro_batches: int
) -> None:
    local = 2 if schedule.takes_stages else 1
    assert refused(schedule, ranks, local, micro_batches) is None
    found = orders(schedule, ranks, local, micro_batches)
    expected = {(stage, index) for stage in range(ranks * local) for index in range(micro_batches)}
    for kinds in ({F}, {B, Kind.INPUT}):
        ran = [(a.stage, a.micro_batch) for order in found for a in order if a.kind in kinds]
        assert set(ran) == expected
        assert len(ran) == len(expected)
    seconds = {(kind, stage): 1.0 for kind in Kind for stage in range(ranks * local)}
    assert run(found, seconds).seconds >= 2 * micro_batches * local


def test_what_stands_under_1f1b_is_the_way_to_the_end_and_under_gpipe_everything() -> None:
    assert [in_flight(order) for order in orders(Schedule.ONE_F_ONE_B, 4, 1, 16)] == [4, 3, 2, 1]
    assert [in_flight(order) for order in orders(Schedule.GPIPE, 4, 1, 16)] == [16] * 4
    assert in_flight(orders(Schedule.INTERLEAVED, 4, 2, 16)[0]) == 4 + 2 * 3 + 1


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 8), (4, 32), (8, 16)])
def test_the_bubble_is_the_papers(ranks: int, micro_batches: int) -> None:
    """(p - 1) / (m + p - 1) of equal stages; with v stages a rank (p - 1) / v of it (Narayanan et al. 2021)."""
    once = {(kind, stage): 1.0 for kind in (F, B) for stage in range(ranks)}
    for schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B):
        found = run(orders(schedule, ranks, 1, micro_batches), once)
        assert found.bubble == pytest.approx((ranks - 1) / (micro_batches + ranks - 1))
    halves = {(kind, stage): 0.5 for kind in (F, B) for stage in range(2 * ranks)}
    found = run(orders(Schedule.INTERLEAVED, ranks, 2, micro_batches), halves)
    assert found.bubble == pytest.approx((ranks - 1) / (2 * micro_batches + ranks - 1))


def test_a_slow_stage_holds_all_others_up() -> None:
    seconds = {(kind, stage): 2.0 if stage == 1 else 1.0 for kind in (F, B) for stage in range(2)}
    found = run(orders(Schedule.ONE_F_ONE_B, 2, 1, 8), seconds, sending=0.5)
    assert found.seconds >= 8 * 4
    assert found.bubble > 0.2


@pytest.mark.parametrize(
    ("schedule", "ranks", "local", "micro_batches", "says"),
    [
        (Schedule.ONE_F_ONE_B, 4, 1, 2, "as many micro batches as stages"),
        (Schedule.GPIPE, 4, 2, 8, "--schedule interleaved"),
        (Schedule.INTERLEAVED, 4, 1, 8, "--vpp 2"),
        (Schedule.INTERLEAVED, 4, 2, 9, "multiple of 2"),
    ],
)
def test_what_torch_does_not_run_is_said_in_one_line(
    schedule: Schedule, ranks: int, local: int, micro_batches: int, says: str
) -> None:
    assert says in str(refused(schedule, ranks, local, micro_batches))


def test_layers_are_shared_out_evenly_and_the_ends_never_get_more() -> None:
    for layers, stages in ((32, 4), (30, 4), (33, 4), (126, 16), (5, 5), (7, 2)):
        cuts = even_cuts(layers, stages)
        sizes = [cut.end - cut.first for cut in cuts]
        assert sum(sizes) == layers
        assert max(sizes) - min(sizes) <= 1
        assert cuts[0].is_first
        assert cuts[-1].is_last
        if stages > 2:
            assert max(sizes[0], sizes[-1]) <= max(sizes[1:-1])
    assert of_rank(1, 4, 2) == (1, 5)


def test_layers_are_counted_by_names() -> None:
    names = [f"model.layers.{index}.mlp.experts.{expert}.w" for index in range(4) for expert in range(2)]
    assert count_layers(["model.embed_tokens.weight", *names]) == 4
    assert count_layers(["weight"]) == 0


def test_a_head_that_takes_as_long_as_three_layers_leaves_its_stage_three_fewer() -> None:
    cuts = balanced_cuts(32, 8, layer=1.0, first=0.0, last=3.0)
    sizes = [cut.end - cut.first for cut in cuts]
    assert sum(sizes) == 32
    assert sizes[-1] == 2
    assert max(sizes[:-1]) == 5
    assert sizes[:-1] == sorted(sizes[:-1]), "the earlier stages, on which most stands, get fewer"
    assert balanced_cuts(32, 8, layer=1.0, first=0.0, last=0.0) == even_cuts(32, 8)
    assert [cut.end - cut.first for cut in balanced_cuts(4, 4, layer=1.0, first=9.0, last=9.0)] == [1, 1, 1, 1]


def test_a_sender_that_waits_costs_every_micro_batch_both_ways() -> None:
    ranks, micro_batches = 4, 64
    found = orders(Schedule.ONE_F_ONE_B, ranks, 1, micro_batches)
    seconds = {(kind, stage): 1.0 for kind in (F, B) for stage in range(ranks)}
    alone, beside, waiting = (
        run(found, seconds, sending, waits=waits).seconds
        for sending, waits in ((0.0, False), (0.1, False), (0.1, True))
    )
    assert alone < beside < waiting
    assert (waiting - alone) / micro_batches == pytest.approx(0.2, rel=0.15)
