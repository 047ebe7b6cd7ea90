"""`current_plan()`: what a training script may ask for. Without a plan, it answers with the script's own defaults."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor import names


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPlan:
    """The plan under which this process runs; every field is None (or False) where it runs without one."""

    active: bool = False
    """Whether the process was started by `plan --execute`."""
    micro_batch_size: int | None = None
    """Samples per forward pass on one rank: the DataLoader's batch_size."""
    gradient_accumulation_steps: int | None = None
    sequence_length: int | None = None
    precision: str | None = None
    strategy: str | None = None
    checkpointing: str | None = None
    optimizer: str | None = None
    resume_from: Path | None = None
    """Checkpoint to load before training goes on; None for a fresh start."""
    run_folder: Path | None = None
    attempt: int = 1


def current_plan(environment: Mapping[str, str] | None = None) -> CurrentPlan:
    """The plan of this process, read from the environment and the run folder; an inactive one outside a run.

    Never raises for a missing or unreadable plan file: the script runs the same without us.
    """
    env = os.environ if environment is None else environment
    folder = env.get(names.RUN_FOLDER)
    if not folder:
        return CurrentPlan()
    plan = _plan(Path(folder))
    strategy, workload = _section(plan.get("plan"), "strategy"), _section(plan, "workload")
    resume = env.get(names.RESUME_FROM)
    return CurrentPlan(
        active=True,
        micro_batch_size=_integer(env.get(names.MICRO_BATCH_SIZE)),
        gradient_accumulation_steps=_integer(env.get(names.GRADIENT_ACCUMULATION_STEPS)),
        sequence_length=_integer(env.get(names.SEQUENCE_LENGTH)),
        precision=_text(strategy.get("precision")),
        strategy=_text(strategy.get("name")),
        checkpointing=_text(strategy.get("checkpointing")),
        optimizer=_text(workload.get("optimizer")),
        resume_from=Path(resume) if resume else None,
        run_folder=Path(folder),
        attempt=_integer(env.get(names.ATTEMPT)) or 1,
    )


def _plan(folder: Path) -> dict[str, object]:
    try:
        content = json.loads((folder / names.PLAN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _section(value: object, name: str) -> Mapping[str, object]:
    inner = value.get(name) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
