"""Documents validate against the published JSON Schemas, and spoilt ones do not."""

import json
from pathlib import Path

import pytest

from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.plan.diff import compare, side_of_document
from gpu_plan.planner.plan.document import to_json
from gpu_plan.planner.regression.result import CheckReport, Finding, JobResult
from tests.support.plan_example import llama_on_8xh100, nothing_fits
from tests.support.sweep_example import grid

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[3]
BEFORE = ROOT / "tests" / "golden" / "written_before"
RECORDS = sorted((BEFORE / "records").iterdir())


def validator(name):
    schema = json.loads((ROOT / "docs" / "schema" / f"{name}.schema.json").read_text(encoding="utf-8"))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


PLAN = json.loads(to_json(llama_on_8xh100()))
DIFFERENCE = compare(side_of_document(llama_on_8xh100(), "a", llama_on_8xh100().best),
                     side_of_document(nothing_fits(), "b", nothing_fits().rejected[0]))  # fmt: skip
CHECK = CheckReport(
    command="plan check",
    root="/home/me",
    versions={"torch": "2.13.0"},
    jobs=(
        JobResult(
            name="train",
            file="pyproject.toml",
            line=7,
            status="fail",
            figures=(),
            findings=(Finding(level="error", kind="growth", message="peak allocated +33 %", file="a.py", line=8),),
        ),
    ),
)
DOCUMENTS = {
    "check": [json.loads(dump(CHECK))],
    "plan": [PLAN, json.loads(to_json(nothing_fits()))],
    "saved-plan": [json.loads((BEFORE / f"{name}.json").read_text()) for name in ("fsdp", "zero3", "generate")],
    "sweep": [json.loads(dump(grid())), json.loads((BEFORE / "sweep.json").read_text())],
    "diff": [json.loads(dump(DIFFERENCE))],
    "baseline": [json.loads((BEFORE / "baselines" / "small.json").read_text())],
    "run": [json.loads((folder / "run.json").read_text()) for folder in RECORDS],
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, at) for name, kept in DOCUMENTS.items() for at in range(len(kept))]
)
def test_documents_validate(name, number):
    assert [error.message for error in validator(name).iter_errors(DOCUMENTS[name][number])] == []


def spoilt(path, value):
    """A copy of the plan with another value at a dotted path; ... takes the key away."""
    copy = json.loads(json.dumps(PLAN))
    place = copy
    *outer, last = path.split(".")
    for key in outer:
        place = place[int(key)] if key.isdigit() else place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("plans", ...),
        ("plans.0.strategy.micro_batch_size", ...),
        ("plans.0.verdict", "maybe"),
        ("plans.0.memory.peak_allocated_bytes", "53 GiB"),
        ("plans.0.memory.peak_allocated_bytes", 1.5),
        ("warnings", [7]),
        ("model.parameters", None),
        ("assumptions.0.basis", "guessed"),
    ],
)
def test_a_spoilt_document_does_not(path, value):
    assert list(validator("plan").iter_errors(spoilt(path, value)))


def test_keys_of_later_versions_are_passed_over():
    assert not list(validator("plan").iter_errors({**PLAN, "later": 1}))


def test_every_field_of_the_plan_is_described_or_says_it_itself():
    schema = json.loads((ROOT / "docs" / "schema" / "plan.schema.json").read_text())
    assert all(part["description"] for part in schema["$defs"].values())
