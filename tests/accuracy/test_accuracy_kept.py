"""Which stack ran a row, as the row itself tells; and a benchmark that goes on where it was stopped."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy.__main__ import document, main
from benchmarks.accuracy.figures import FAULT, Aside, Scored
from benchmarks.accuracy.kept import Kept
from benchmarks.accuracy.models import Models
from benchmarks.accuracy.ran import UNKNOWN, ran_by
from benchmarks.accuracy.score import Scorer
from benchmarks.accuracy.truth import Kind, Truth

ROWS: tuple[dict[str, Any], ...] = tuple(
    {"id": name, "group": "qwen-speed", "model": "a", "measured": {"peak_allocated_gib": 1.0}} for name in "abc"
)
TRUTH = Truth(path=Path("x.json"), rows=ROWS, kinds=(Kind.INFERENCE,) * 3, unknown=())


# -- stacks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "stack", "told_by"),
    [
        ({"software": "torch 2.4.1, transformers 4.45.2, trl 0.11.4"}, "trl", "software"),
        ({"software": "torch 2.4.0, transformers 4.44.2, accelerate 0.33.0"}, "transformers", "software"),
        ({"software": "transformers 4.46.0, AutoGPTQ 0.7.1, AutoAWQ 0.2.6"}, "transformers", "software"),
        ({"group": "torchao", "source": "github.com/pytorch/ao"}, "torchtitan", "group"),
        ({"group": "litgpt", "software": "PyTorch 2.1, litgpt commit 8641822"}, "litgpt", "software"),
        ({"group": "fsdp_qlora"}, "fsdp_qlora", "group"),
        ({"group": "nobody", "source": "https://github.com/axolotl-ai-cloud/axolotl/issues/1"}, "axolotl", "source"),
        ({"group": "fms-acceleration", "software": "see scripts/requirements.txt"}, UNKNOWN, ""),
        ({"group": "qwen-readme", "software": "CUDA 11.8, PyTorch 2.0"}, UNKNOWN, ""),
        ({"software": "my own controls, 3.1"}, UNKNOWN, ""),
        ({"software": None, "group": 3, "strategy": ["trl"], "source": {}}, UNKNOWN, ""),
        ({}, UNKNOWN, ""),
    ],
)
def test_a_row_tells_what_ran_it(row: dict[str, Any], stack: str, told_by: str) -> None:
    found = ran_by(row)
    assert (found.stack, found.told_by) == (stack, told_by)


def test_each_scored_row_names_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = _scorer(monkeypatch, [])
    found = scorer.score([TRUTH])
    assert [line["stack"] for line in found.lines] == [UNKNOWN] * 3
    told = document(found)["rows"]
    assert told[0] == {"id": "a", "kind": "inference", "group": "g", "stack": UNKNOWN, "stack_told_by": ""}


# -- kept rows ------------------------------------------------------------------------------------------------


def _scorer(monkeypatch: pytest.MonkeyPatch, judged: list[str], failing: str = "") -> Scorer:
    scorer = Scorer(Models())

    def line(row: Any) -> dict[str, Any]:
        judged.append(row["id"])
        if row["id"] == failing:
            raise ZeroDivisionError
        return {"kind": "inference", "id": row["id"], "group": "g", "model": "m", "peak_allocated_error": 0.125}

    monkeypatch.setitem(scorer._lines, Kind.INFERENCE, line)
    return scorer


def _run(monkeypatch: pytest.MonkeyPatch, path: Path, state: str, failing: str = "") -> tuple[Scored, list[str]]:
    judged: list[str] = []
    found = _scorer(monkeypatch, judged, failing).score([TRUTH], kept=Kept(path, state))
    return found, judged


def test_what_is_kept_is_not_judged_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    first, judged = _run(monkeypatch, path, "s")
    assert judged == ["a", "b", "c"]
    cut = path.read_text().splitlines()
    path.write_text("\n".join(cut[:3]) + "\n" + cut[3][:20])
    again, judged = _run(monkeypatch, path, "s")
    assert judged == ["c"]
    assert again == first
    assert _run(monkeypatch, path, "s") == (first, [])


def test_other_code_begins_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.jsonl"
    _run(monkeypatch, path, "s")
    assert _run(monkeypatch, path, "t")[1] == ["a", "b", "c"]
    assert "kept by other code" in capsys.readouterr().err


def test_a_row_that_failed_here_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    found, _ = _run(monkeypatch, path, "s", failing="b")
    assert isinstance(found.aside[0], Aside)
    assert found.aside[0].reason.startswith(FAULT)
    assert _run(monkeypatch, path, "s")[1] == ["b"]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([dict(ROWS[0], software="x", strategy="single")]))
    assert main(["--truth", str(path), "--keep", str(tmp_path)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
