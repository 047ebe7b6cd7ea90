"""How the cheapest machine that is named is held against those that a whole search finds."""

from typing import Any

import pytest

from benchmarks.told import cheapest_machine
from benchmarks.told.cheapest_machine import compared, costs, page


def test_the_same_machine_is_no_dearer() -> None:
    found = compared({"1xL4": 9.0, "1xT4": 8.0}, {"1xL4": 8.5, "1xT4": 7.0, "8xH100": 30.0})
    assert (found["named"], found["cheapest"], found["same"], found["dearer"]) == ("1xT4", "1xT4", True, 0.0)
    assert found["missed"] == ["8xH100"]


def test_another_machine_is_compared_by_its_own_best_plan_not_by_what_was_named() -> None:
    found = compared({"1xL4": 9.0, "1xT4": 10.0}, {"1xL4": 8.8, "1xT4": 8.0})
    assert (found["named"], found["cheapest"], found["same"]) == ("1xL4", "1xT4", False)
    assert found["dearer"] == pytest.approx(0.1)


def test_where_nothing_fits_nothing_is_named() -> None:
    assert compared({}, {})["dearer"] is None
    assert "| tiny | None | None |" in page([{"model": "tiny", **compared({}, {})}])


def test_a_plan_that_only_may_fit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, dict[str, Any]] = {
        "1xT4": {"plans": [{"fits": False}], "whole_job": {"usd": 1.0}},
        "1xL4": {"plans": [{"fits": True}], "whole_job": {"usd": 2.0}},
        "1xA100": {"plans": [{"fits": True}], "whole_job": {"usd": None}},
        "1xH100": {},
    }
    monkeypatch.setattr(cheapest_machine, "asked", lambda words: answers[words[2]])
    assert costs("tiny", answers) == {"1xL4": 2.0}
