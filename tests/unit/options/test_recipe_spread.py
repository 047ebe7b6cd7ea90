"""How a job that rolls out is cut, and how many copies of a server generate for it. No torch."""

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.job.recipe.spread import batch_words, server_copies, training_part
from gpu_plan.planner.options.cluster import find_cluster
from gpu_plan.planner.options.recipe.read import read_recipe


def cut(words: dict[str, str], world: int, *, pinned: bool = False) -> dict[str, str]:
    given = read_recipe({"recipe": "grpo", **words}, ())
    return dict(batch_words(given, dict(given.words), world, pinned=pinned))


@pytest.mark.parametrize(
    ("words", "world", "pinned", "found"),
    [
        ({}, 1, False, {"global-batch": "8"}),
        ({}, 7, False, {"global-batch": "56"}),
        ({}, 1, True, {"micro-batch": "1", "grad-accum": "8"}),
        ({"micro-batch": "2"}, 2, False, {"micro-batch": "2", "grad-accum": "2"}),
        ({"grad-accum": "16"}, 1, False, {"micro-batch": "1", "grad-accum": "16"}),
        ({"global-batch": "64"}, 4, False, {"global-batch": "64"}),
    ],
)
def test_a_step_is_whole_groups(words: dict[str, str], world: int, pinned: bool, found: dict[str, str]) -> None:
    assert cut(words, world, pinned=pinned) == found


def test_no_whole_groups_are_refused() -> None:
    with pytest.raises(UsageError, match="no whole groups of --generations 8"):
        cut({"micro-batch": "3", "grad-accum": "1"}, 1)


def test_copies_are_those_under_which_a_completion_takes_least() -> None:
    cluster = find_cluster("8xH100")
    tried: list[int] = []

    def seconds(copies: int) -> float | None:
        tried.append(copies)
        return {1: 4.0, 2: 3.0, 4: 3.5}.get(copies)

    assert server_copies(cluster, 1, seconds, pinned=False) == 2
    assert tried == [1, 2, 4]
    assert server_copies(cluster, 4, seconds, pinned=False) == 1  # Another would leave none to train on.
    assert server_copies(cluster, 1, lambda copies: None, pinned=False) == 1
    assert server_copies(cluster, 1, seconds, pinned=True) == 1
    assert tried == [1, 2, 4]


def test_a_server_takes_whole_nodes_of_several() -> None:
    two = find_cluster("2x8xH100")
    assert training_part(two, 8).world_size == 8
    assert training_part(find_cluster("8xH100"), 3).world_size == 5
    for taken in (3, 16):
        with pytest.raises(UsageError, match="has a part of a node"):
            training_part(two, taken)
