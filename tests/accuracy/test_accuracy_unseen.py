"""Rows that nothing was looked at with: those of benchmarks/data never, the same ones every time."""

import json
from pathlib import Path

import pytest

from benchmarks.accuracy.speed.unseen import drawn, main

ROWS = [{"id": f"row-{place:03}"} for place in range(50)]


def test_seen_rows_are_never_drawn_and_the_order_is_the_seeds() -> None:
    seen = [f"row-{place:03}" for place in range(0, 50, 2)]
    found = [row["id"] for row in drawn(ROWS, seen, 100)]
    assert len(found) == 25
    assert not set(found) & set(seen)
    assert found == [row["id"] for row in drawn(reversed(ROWS), seen, 100)] != sorted(found)
    assert [row["id"] for row in drawn(ROWS, seen, 10)] == found[:10]


def test_a_file_without_unseen_rows_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"id": "one", "group": "vtrain-single", "measured": {"step_time_s": 1.0}}]))
    assert main([str(path), "--group", "other"]) == 2
    assert "has no row that is not among the committed ones" in capsys.readouterr().err
    assert main([str(path)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == "one"
