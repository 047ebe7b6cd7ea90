"""A model in stages inside a loop that knows nothing of them: losses, norms and evaluation of the whole model."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.distributed_reference import launch_ranks
from tests.support.ranks.launched.worker import CASES

pytestmark = pytest.mark.slow


@cache
def ranks() -> list[dict[str, Any]]:
    """What both ranks of the one launch saw."""
    with tempfile.TemporaryDirectory(prefix="plan-stages-") as name:
        folder = Path(name)
        launch_ranks("tests.support.ranks.launched.worker", folder, 2, 1500)
        found = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
    for one in found:
        assert "error" not in one, one["error"]
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_loop_sees_what_it_would_see_of_the_whole_model(case: str) -> None:
    for rank in ranks():
        assert rank[case]["stages"] == pytest.approx(rank[case]["one"], rel=2e-6)
        assert rank[case]["held"] < rank[case]["all"], "a rank holds some of the layers alone"


def test_the_whole_weights_are_those_that_were_cut() -> None:
    first, second = ranks()
    assert (first["weights"], first["names"]) == ([], [])
    assert len(second["names"]) > 1, "they are put together on the first rank alone"


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("no labels", "call it with labels"),
        ("logits", "gives its loss alone in training, not logits"),
        ("other samples", "the ranks of a pipeline see different samples"),
        ("saved alone", "would write its stage alone"),
    ],
)
def test_misuse_ends_in_one_line(what: str, says: str) -> None:
    for rank in ranks():
        assert says in rank[what]
        assert "\n" not in rank[what]
