"""The matrix: real jobs under planned strategies, launched by `plan --execute`, on CPU processes.

Each loop × strategy runs the same four steps on the same samples and weights; what one process makes of the whole
global batch is the reference for all of them.
"""

from functools import cache
from itertools import pairwise

import pytest

from tests.support.matrix import (
    STEPS,
    TOLERANCE,
    Cell,
    Ran,
    cells,
    furthest,
    launch,
    make_weights,
    sample,
    single,
    wrong_inside,
)

REFERENCE = single("accelerate")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Runs a cell, once."""
    folder = tmp_path_factory.mktemp("matrix")
    model = make_weights(folder)
    return cache(lambda cell: launch(cell, model, folder))


def check(run: Ran, reference: Ran) -> None:
    """Ended well; ran what was planned, as its ranks saw it; the same losses; records and figures are there."""
    assert run.code == 0, run.output[-4000:]
    assert run.run.status == "succeeded"
    assert wrong_inside(run) == []
    assert len(run.losses) == STEPS
    assert furthest(run, reference) < TOLERANCE
    memory = run.comparison.memory[0]
    assert memory.predicted is not None
    assert memory.measured is not None
    assert memory.measured > 0
    assert len(run.comparison.ranks) == run.cell.ranks
    assert all(line.phases.keys() == {"forward", "backward", "optimizer"} for line in run.comparison.ranks)


@pytest.mark.slow
def test_losses_fall_apart_without_the_same_samples(ran):
    """The tolerance is far below what any step changes: a job that skipped or repeated one would not pass."""
    losses = ran(REFERENCE).losses
    steps = [abs(later - earlier) / earlier for earlier, later in pairwise(losses)]
    assert min(steps) > 100 * TOLERANCE


@pytest.mark.parametrize("cell", sample(), ids=Cell.label)
def test_the_job_runs_as_planned_and_learns_the_same(ran, cell):
    check(ran(cell), ran(REFERENCE))


@pytest.mark.slow
@pytest.mark.parametrize("cell", [cell for cell in cells() if cell not in sample()], ids=Cell.label)
def test_all(ran, cell):
    check(ran(cell), ran(REFERENCE))
