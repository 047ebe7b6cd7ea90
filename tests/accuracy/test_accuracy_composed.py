"""Times that were added up lie on one line; measured ones do not."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy.speed.composed import EXACT, distances, main


def job(micro_batches: int, seconds: float) -> dict[str, Any]:
    return {
        "id": f"row-{micro_batches}-{seconds}", "group": "some", "num_microbatches": micro_batches,
        "arch": {"hidden_size": 64, "num_layers": 2}, "measured": {"step_time_s": seconds},
    }  # fmt: skip


def test_a_time_between_two_others_is_held_against_their_line() -> None:
    line = "num_microbatches"
    assert max(distances([job(count, 0.5 + 0.25 * count) for count in (2, 4, 8)], line)) < EXACT
    assert distances([job(2, 1.0), job(4, 1.515), job(8, 2.5)], line) == [pytest.approx(0.01)]
    assert distances([job(2, 1.0), job(4, 1.5)], line) == []
    other = job(8, 9.0) | {"seq_len": 1024}
    assert distances([job(2, 1.0), job(4, 1.5), other], line) == []


def test_the_command_counts_them_or_says_that_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([job(count, 0.5 + 0.25 * count) for count in (2, 4, 8)]))
    assert main([str(path)]) == 0
    assert "micro batches: 1 of 1 times between two others lie on their line" in capsys.readouterr().out
    path.write_text(json.dumps([job(2, 1.0)]))
    assert main([str(path)]) == 2
    assert "no three jobs that differ in one number alone" in capsys.readouterr().err
