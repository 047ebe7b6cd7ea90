"""Starts a small job under a plan, and judges what its ranks tell (I/O)."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from gpu_plan.executor.doctor.trial.judge import Trial, judge
from gpu_plan.executor.doctor.trial.outcome import OUT, RankResult
from gpu_plan.executor.job import Job
from gpu_plan.executor.run_folder import RunFolder, create
from gpu_plan.executor.supervise.limits import Limits
from gpu_plan.executor.supervise.supervisor import supervise
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.foreign.as_json import json_value
from gpu_plan.planner.foreign.files import read_bytes
from gpu_plan.planner.plan.codec import MAX_BYTES, decode
from gpu_plan.planner.plan.saved import SavedPlan

SCRIPT = Path(__file__).with_name("script.py")
_LIMITS = Limits(hang=60.0, hang_first=300.0, hang_busy=3.0)


def trial(saved: SavedPlan, environment: Mapping[str, str] | None = None) -> Trial:
    """Launches through the files that `--execute` would use, in a folder that is deleted again.

    `environment` is added to the ranks'. Whatever happens, no process is left. Raises PreflightError where nothing can
    be launched.
    """
    with tempfile.TemporaryDirectory(prefix="plan-doctor-") as name:
        place = Path(name)
        out = place / "out"
        out.mkdir()
        job = Job(
            saved=saved,
            script=SCRIPT,
            working_directory=place,
            max_restarts=0,
            environment={**(environment or {}), OUT: str(out)},
            check_parameters=False,
            allow_deviation=True,
            command="plan doctor --launch",
        )
        folder = create(place)
        record = supervise(job, folder=folder, limits=_LIMITS)
        return judge(saved, record, read_results(out), _seen_strategy(folder), _last_words(folder))


def read_results(folder: Path) -> tuple[RankResult, ...]:
    """The ranks' files that are whole, by rank."""
    found = []
    for path in sorted(folder.glob("trial-*.json")):
        try:
            found.append(decode(RankResult, json_value(read_bytes(path, MAX_BYTES)), str(path)))
        except (OSError, ValueError, InputError):
            continue
    return tuple(sorted(found, key=lambda result: (result.rank, result.pid)))


def _seen_strategy(folder: RunFolder) -> str | None:
    """What the ranks' records say of the wrapped model."""
    return next((rank.actual.strategy for rank in folder.ranks() if rank.actual.strategy is not None), None)


def _last_words(folder: RunFolder) -> str:
    """The error that a rank recorded, else nothing."""
    errors = [rank.error for rank in folder.ranks() if rank.error is not None and rank.status != "peer_failure"]
    return " ".join(f"{error.type}: {error.message}".split())[:300] if (error := next(iter(errors), None)) else ""
