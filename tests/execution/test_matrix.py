"""The matrix: real jobs under planned strategies, launched by `plan --execute`, on CPU processes.

Each loop × strategy trains one epoch of the same samples from the same weights: with weight decay, dropout, a schedule
and an odd number of batches, clipped and not. One process of plain torch that does the same is the reference.
"""

from dataclasses import asdict, replace
from functools import cache

import pytest

from tests.support.matrix import (
    STEPS,
    TOLERANCE,
    VARIATIONS,
    Cell,
    Ran,
    cells,
    experts_cells,
    furthest,
    launch,
    make_experts,
    make_weights,
    sample,
    wrong_inside,
)
from tests.support.plain_training import reference, train


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_weights(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory, model):
    """Runs a cell, once."""
    folder = tmp_path_factory.mktemp("matrix")
    return cache(lambda cell: launch(cell, model, folder))


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    return make_experts(tmp_path_factory.mktemp("experts"))


def check(run: Ran, expected: tuple[float, ...], tolerance: float = TOLERANCE) -> None:
    """Ended well; ran what was planned, as its ranks saw it; the same losses; records and figures are there."""
    assert run.code == 0, run.output[-4000:]
    assert run.run.status == "succeeded"
    assert wrong_inside(run) == []
    assert len(run.losses) == STEPS
    assert furthest(run, expected) < tolerance
    memory = run.comparison.memory[0]
    assert memory.predicted is not None
    assert memory.measured is not None
    assert memory.measured > 0
    assert len(run.comparison.ranks) == run.cell.ranks
    assert all(line.phases.keys() == {"forward", "backward", "optimizer"} for line in run.comparison.ranks)


CHANGED = {
    "clip": {"clip": 0.0},
    "decay": {"decay": 0.0},
    "dropout": {"dropout": 0.0},
    "random dropout": {"random_dropout": 0.1},
    "schedule": {"schedule": False},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGED)
def test_each_variation_is_far_from_the_tolerance(model, name):
    """A job that left one out, or did one unasked, would not pass."""
    whole = VARIATIONS["clipped"]
    shape = {"trainer": False, "batch": 4, "accumulation": 2}
    first, other = (train(str(model), **shape, **asdict(what)) for what in (whole, replace(whole, **CHANGED[name])))
    assert max(abs(a - b) / b for a, b in zip(first, other, strict=True)) > 50 * TOLERANCE


@pytest.mark.parametrize("cell", sample(), ids=Cell.label)
def test_the_job_runs_as_planned_and_learns_the_same(ran, model, cell):
    check(ran(cell), reference(cell, model))


@pytest.mark.slow
@pytest.mark.parametrize("cell", [cell for cell in cells() if cell not in sample()], ids=Cell.label)
def test_all(ran, model, cell):
    check(ran(cell), reference(cell, model))


@pytest.mark.slow
@pytest.mark.parametrize("cell", experts_cells(), ids=Cell.label)
def test_experts_over_ranks(tmp_path_factory, experts, cell):
    run = launch(cell, experts, tmp_path_factory.mktemp("matrix"))
    check(run, reference(cell, experts))
    assert {rank.actual.expert_parallel for rank in run.run.ranks} == {cell.expert_parallel}
