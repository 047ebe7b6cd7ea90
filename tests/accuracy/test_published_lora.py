"""LoRA estimates against published peaks: the committed table is what the code says, and every row has its place."""

import json
from typing import Any

import pytest

from benchmarks.published_lora import HERE, compare, markdown

COMMITTED: dict[str, Any] = json.loads((HERE / "results" / "published_lora.json").read_text())
ROWS = {row["id"]: row for row in json.loads((HERE / "data" / "published_lora.json").read_text())["rows"]}
LINES = {line["id"]: line for line in COMMITTED["compared"]}
SAMPLE = ("tm-fms-acceleration-0017", "tm-fms-acceleration-0119", "tm-fms-acceleration-0178")
"""One of each loss: plain, fused with the head, in place."""


@pytest.mark.parametrize("name", SAMPLE)
def test_the_committed_figures_are_those_of_the_code(name: str) -> None:
    assert compare(ROWS[name]) == LINES[name]


def test_every_row_is_compared_or_set_aside() -> None:
    assert len(LINES) + sum(COMMITTED["set_aside"].values()) == len(ROWS)
    assert all(ROWS[name]["confidence"] == "high" for name in LINES)


@pytest.mark.parametrize("name", sorted(LINES))
def test_peaks_and_what_lies_above_the_states(name: str) -> None:
    line = LINES[name]
    assert abs(line["peak_error"]) < 0.001
    assert abs(line["above_states_error"]) < 0.001
    assert line["states"] < 0.8 * line["measured_peak"]


def test_the_page_is_made_of_the_figures() -> None:
    assert (HERE / "results" / "published_lora.md").read_text() == markdown(COMMITTED)
