"""A recorded run against a job's plan and baseline: only like with like. Pure; knows no run folder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpu_plan.planner.regression.baseline import Baseline
from gpu_plan.planner.regression.compare import label_of
from gpu_plan.planner.regression.computed import Computed
from gpu_plan.planner.regression.jobs import CheckJob
from gpu_plan.planner.regression.limits import grown
from gpu_plan.planner.regression.result import Finding
from gpu_plan.planner.units import format_bytes

_ALIKE: Mapping[str, str] = {
    "cluster.gpu": "GPU",
    "cluster.gpus": "number of GPUs",
    "cluster.nodes": "number of nodes",
    "model.parameters": "number of parameters",
    "model.trainable_parameters": "number of trained parameters",
    "workload.seq_len": "sequence length",
    "workload.optimizer": "optimizer",
    "strategy.name": "strategy",
    "strategy.offload": "offload",
    "strategy.micro_batch_size": "micro batch",
    "strategy.gradient_accumulation_steps": "accumulation",
    "strategy.checkpointing": "checkpointing",
    "strategy.precision": "precision",
}
"""What must be the same for a run's memory to say anything about a job's."""
_COMPARED = ("peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes")
_VERSIONED = ("torch", "transformers", "accelerate", "peft")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a run's records say, under the names that a baseline has for it."""

    run_id: str
    configuration: Mapping[str, object]
    """Those of a baseline's configuration that are known of the run."""
    versions: Mapping[str, str]
    figures: Mapping[str, int] = field(default_factory=dict)
    """Of the worst rank, as its device counted them; empty on CPU ranks, which have no such counters."""
    step_microseconds: int | None = None
    problems: tuple[str, ...] = ()
    """What could not be read."""


def measured_findings(job: CheckJob, now: Computed, baseline: Baseline | None, run: MeasuredRun) -> tuple[Finding, ...]:
    """What the run says of the job: its measured peaks against the baseline's thresholds, the budgets, and the plan."""
    found = [_notice(f"run {run.run_id}: {problem}") for problem in run.problems]
    unlike = [*_unlike(now.state, run), *_other_versions(now.state, run)]
    if unlike:
        found += [_notice(f"run {run.run_id} is not compared: {line}") for line in unlike]
        return tuple(found)
    if not run.figures:
        said = "its ranks ran on CPUs, where no allocator counts what the plan predicts"
        return (*found, _notice(f"run {run.run_id} is not compared: {said}"))
    found += _against_reference(job, now.state if baseline is None else baseline, run)
    found += _against_budgets(job, run)
    found += _against_plan(now.state, run)
    return tuple(found)


def _unlike(state: Baseline, run: MeasuredRun) -> Iterator[str]:
    for key, words in _ALIKE.items():
        planned, ran = state.configuration.get(key), run.configuration.get(key)
        if planned is not None and ran is not None and planned != ran:
            yield f"its {words} is {ran}, the job's {planned}"


def _other_versions(state: Baseline, run: MeasuredRun) -> Iterator[str]:
    for package in _VERSIONED:
        # `2.13.0+cu128` and `2.13.0+cpu` are one version, built for two machines.
        ours, theirs = (side.get(package, "absent").partition("+")[0] for side in (state.versions, run.versions))
        if package in run.versions and ours != theirs:
            yield f"it ran with {package} {theirs}, here is {ours}"


def _against_reference(job: CheckJob, reference: Baseline, run: MeasuredRun) -> Iterator[Finding]:
    """Growth of what was measured over the baseline, by the job's own thresholds."""
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        before, measured = reference.figures.get(name), run.figures.get(name)
        if before is None or measured is None:
            continue
        failed, warned = job.fail.passed_by(before, measured), job.warn.passed_by(before, measured)
        if failed or warned:
            limit = f"fail = {job.fail.text!r}" if failed else f"warn = {job.warn.text!r}"
            yield Finding(
                level="error" if failed else "warning",
                kind="measured",
                message=f"run {run.run_id} measured {label_of(name)} {grown(before, measured)}, beyond {limit}",
                file=job.path.name,
                line=job.line,
                delta_bytes=measured - before,
            )


def _against_budgets(job: CheckJob, run: MeasuredRun) -> Iterator[Finding]:
    for budget in job.budgets:
        size = None if budget.figure is None else run.figures.get(budget.figure)
        if size is not None and size > budget.bytes:
            over = size - budget.bytes
            said = f"run {run.run_id} measured {label_of(budget.figure or '')} {format_bytes(size)}"
            yield Finding(
                level="error",
                kind="measured",
                message=f"{said}, over the budget {budget.text!r} by {format_bytes(over)}",
                file=job.path.name,
                line=job.lines.get("budget", job.line),
                delta_bytes=over,
            )


def _against_plan(state: Baseline, run: MeasuredRun) -> Iterator[Finding]:
    """How well the plan foretold it, for information."""
    for name in _COMPARED:
        planned, measured = state.figures.get(name), run.figures.get(name)
        if planned and measured is not None:
            said = f"{label_of(name)}: planned {format_bytes(planned)}, measured {format_bytes(measured)}"
            yield _notice(f"run {run.run_id}: {said} ({measured / planned - 1:+.1%})")
    planned = state.figures.get("step_microseconds")
    if planned and run.step_microseconds:
        said = f"step: planned {planned / 1e6:.3g} s, measured {run.step_microseconds / 1e6:.3g} s"
        yield _notice(f"run {run.run_id}: {said}")


def _notice(message: str) -> Finding:
    return Finding(level="notice", kind="measured", message=message)
