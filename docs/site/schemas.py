"""The published JSON Schemas: docs/schema/NAME.schema.json."""

import json
from collections.abc import Mapping
from pathlib import Path

from gpu_plan.executor.records.run import RunRecord
from gpu_plan.planner.plan.diff import PlanDiff
from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.plan.schema import json_schema
from gpu_plan.planner.regression.baseline import Baseline
from gpu_plan.planner.regression.result import CheckReport
from gpu_plan.planner.sweep.document import SweepDocument

FOLDER = Path(__file__).resolve().parents[1] / "schema"
KINDS: Mapping[str, tuple[type, str]] = {
    "plan": (PlanDocument, "a plan, as `plan MODEL --gpus SPEC --json` prints it"),
    "saved-plan": (SavedPlan, "a chosen plan, as `plan ... --save FILE` writes it"),
    "sweep": (SweepDocument, "a sweep, as `plan ... --sweep OPTION=A,B --json` prints it"),
    "diff": (PlanDiff, "what sets two plans apart, as `plan diff A B --json` prints it"),
    "check": (CheckReport, "a check, as `plan check --json` prints it"),
    "baseline": (Baseline, "a baseline, as `plan check --update` writes it"),
    "run": (RunRecord, "a run, as runs/ID/run.json records it"),
}


def texts() -> dict[str, str]:
    """File name -> content of every schema."""
    return {
        f"{name}.schema.json": json.dumps(json_schema(kind, f"gpu-plan: {title}"), indent=1, ensure_ascii=True) + "\n"
        for name, (kind, title) in KINDS.items()
    }


def write() -> None:
    """Writes the published files."""
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
