"""The survey of the catalog: its results cover every model, and what they say of a few is seen again."""

import json
import re
from typing import Any

import pytest

from benchmarks.sweeps.catalog_traces import RESULTS, survey
from gpu_plan.planner.model.catalog_index import load_index


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    document = json.loads((RESULTS / "catalog_traces.json").read_text(encoding="utf-8"))
    return {row["model"]: row for row in document["models"]}


def errors(row: dict[str, Any]) -> list[str]:
    return [error for error in [row["error"], *(step["error"] for step in row["steps"])] if error]


def test_every_native_model_was_surveyed(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == {entry.id for entry in load_index().values() if entry.native}


def test_parameters_are_those_of_the_catalog(rows: dict[str, dict[str, Any]]) -> None:
    index = load_index()
    assert {name: row["parameters"] for name, row in rows.items()} == {n: index[n].meta_params for n in rows}


def test_every_model_traces_its_plain_step(rows: dict[str, dict[str, Any]]) -> None:
    assert [
        name for name, row in rows.items() for step in row["steps"] if step["name"] == "bf16" and step["error"]
    ] == []
    assert all(step["events"] > 0 for row in rows.values() for step in row["steps"] if not step["error"])


def test_what_does_not_trace_says_why_in_our_words(rows: dict[str, dict[str, Any]]) -> None:
    found = [error for row in rows.values() for error in errors(row)]
    assert not [error for error in found if re.match(r"\w*(Error|Exception): ", error)]
    assert all("\n" not in error for error in found)


@pytest.mark.parametrize(
    "model_id",
    [
        "openai-community/gpt2",
        pytest.param("facebook/hiera-base-224", marks=pytest.mark.slow),
        pytest.param("albert/albert-base-v1", marks=pytest.mark.slow),
        pytest.param("microsoft/swin-tiny-patch4-window7-224", marks=pytest.mark.slow),
        pytest.param("openai/whisper-tiny", marks=pytest.mark.slow),
        pytest.param("facebook/wav2vec2-base-960h", marks=pytest.mark.slow),
        pytest.param("llava-hf/llava-1.5-7b-hf", marks=pytest.mark.slow),
        pytest.param("moonshotai/Kimi-K2.5", marks=pytest.mark.slow),
    ],
)
def test_the_survey_repeats_itself(model_id: str, rows: dict[str, dict[str, Any]]) -> None:
    row = survey(load_index()[model_id])
    saved = rows[model_id]
    assert errors(saved) == [error for error in [row.error, *(step.error for step in row.steps)] if error]
    assert (row.class_name, row.folds, row.without_gradient) == (
        saved["class_name"],
        saved["folds"],
        saved["without_gradient"],
    )
    assert [(step.name, step.micro_batches) for step in row.steps] == [
        (step["name"], step["micro_batches"]) for step in saved["steps"]
    ]
