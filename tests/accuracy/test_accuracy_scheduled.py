"""What steps of pipelines say of one layer, by the schedule's own arithmetic."""

import json
from pathlib import Path

import pytest

from benchmarks.accuracy.speed.scheduled import layer_seconds, main


def row(stages: int, micro_batches: int, seconds: float, layers: int = 48) -> dict[str, object]:
    return {
        "model": "39.1B GPT", "arch": {"num_layers": layers}, "num_microbatches": micro_batches,
        "micro_batch_per_gpu": 3, "parallel": {"tp": 2, "pp": stages}, "measured": {"step_time_s": seconds},
    }  # fmt: skip


def test_a_layer_by_the_bubbles_of_1f1b() -> None:
    """vTrain's rows 1488 and 1491: 23 and 47 stage times, of six and three layers, three samples, two ranks each."""
    found = layer_seconds([row(8, 16, 19.0672), row(16, 32, 26.1888), {"model": "without a time"}])
    assert found == {
        ("39.1B GPT", 2, 3): {
            8: pytest.approx(19.0672 / 23 / 6 / 3 * 2),
            16: pytest.approx(26.1888 / 47 / 3 / 3 * 2),
        }
    }


def test_the_table_says_how_far_rows_of_one_model_lie_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    rows = [{"id": str(stages), "group": "vtrain-multi", **row(stages, 16, 20.0)} for stages in (8, 16)]
    file.write_text(json.dumps(rows))
    assert main([str(file), "--group", "vtrain-multi"]) == 0
    assert f"| {23 / 31 * 2:.2f} |" in capsys.readouterr().out
    assert main([str(file), "--group", "nobody's"]) == 2
    assert "no job that ran with several numbers of stages" in capsys.readouterr().err
