"""`plan check --measured RUN`: joins a run's records to the jobs that were checked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.plan.codec import plain
from gpu_plan.planner.regression.compare import ordered, status_of
from gpu_plan.planner.regression.measured import MeasuredRun, measured_findings
from gpu_plan.planner.regression.run import Checked

if TYPE_CHECKING:
    from gpu_plan.executor.records.whole import WholeRun

_FIGURES = {
    "peak allocated": "peak_allocated_bytes",
    "peak reserved": "peak_reserved_bytes",
    "device used": "device_used_bytes",
}


def with_run(found: Sequence[Checked], named: str) -> tuple[Checked, ...]:
    """The jobs with what the run says of each. InputError for a run that is not there."""
    from gpu_plan.executor.read_run import read_whole
    from gpu_plan.executor.run_folder import find

    try:
        run = measured_run(read_whole(find(named, Path.cwd())))
    except UnreachableError as problem:
        raise InputError(str(problem)) from None
    return tuple(_joined(checked, run) for checked in found)


def measured_run(whole: "WholeRun") -> MeasuredRun:
    """A run under a baseline's names. InputError for one whose plan cannot be read: nothing says what it ran."""
    from gpu_plan.reports.run.compare import compare_run

    saved = whole.plan
    if saved is None:
        raise InputError(f"{whole.folder}: {'; '.join(whole.problems) or 'it has no plan'}: nothing says what it ran")
    comparison = compare_run(whole)
    figures = {
        _FIGURES[line.name]: int(line.measured)
        for line in comparison.memory
        if line.comparable and line.name in _FIGURES and line.measured is not None
    }
    step = next((line.measured for line in comparison.speed if line.name == "step"), None)
    model, workload, strategy = plain(saved.model), saved.workload, plain(saved.plan.strategy)
    return MeasuredRun(
        run_id=whole.record.run_id,
        configuration={
            **{f"model.{key}": model[key] for key in ("parameters", "trainable_parameters")},
            **{f"cluster.{key}": saved.cluster[key] for key in ("gpu", "gpus", "nodes")},
            **{f"workload.{key}": workload.get(key) for key in ("seq_len", "optimizer")},
            **{f"strategy.{key}": value for key, value in strategy.items()},
        },
        versions=saved.created_with,
        figures=figures,
        step_microseconds=None if step is None else round(step * 1e6),
        problems=whole.problems,
    )


def _joined(checked: Checked, run: MeasuredRun) -> Checked:
    if checked.now is None:
        return checked
    findings = ordered((*checked.result.findings, *measured_findings(checked.job, checked.now, checked.baseline, run)))
    status = status_of(findings, new=checked.baseline is None)
    return replace(checked, result=replace(checked.result, findings=findings, status=status))
