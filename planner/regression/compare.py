"""A job now against its budgets and its baseline: figures, findings, status. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.regression.baseline import Baseline
from gpu_plan.planner.regression.causes.changes import changed_inputs
from gpu_plan.planner.regression.causes.culprits import Culprit, culprits
from gpu_plan.planner.regression.causes.explained import explained
from gpu_plan.planner.regression.causes.hints import RECOMPUTED, hints
from gpu_plan.planner.regression.computed import Computed
from gpu_plan.planner.regression.jobs import CheckJob
from gpu_plan.planner.regression.limits import grown
from gpu_plan.planner.regression.result import CheckFigure, Finding, Status
from gpu_plan.planner.units import format_bytes

JUDGED = ("peak_allocated_bytes", "peak_reserved_bytes", "host.most_bytes")
"""Figures that `warn` and `fail` apply to."""
LABELS: Mapping[str, str] = {
    "peak_allocated_bytes": "peak allocated",
    "peak_reserved_bytes": "peak reserved",
    "device_used_bytes": "device used",
    "at_rest_bytes": "between steps",
    "num_alloc_retries": "allocation retries",
    "nvme_bytes": "NVMe per rank",
    "host.load_bytes": "RAM of a node to load",
    "host.step_bytes": "RAM of a node in steps",
    "host.save_bytes": "RAM of a node to save",
    "host.most_bytes": "RAM of a node",
    "step_microseconds": "step time",
    RECOMPUTED: "recomputation in a step",
}
_SHOWN = 8
_LEAST_SHARE = 0.002
_STEP_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One job, compared."""

    status: Status
    figures: tuple[CheckFigure, ...]
    findings: tuple[Finding, ...]


def judge(job: CheckJob, now: Computed, baseline: Baseline | None) -> Judged:
    """Absolute budgets first, then growth with what stands behind it."""
    figures = tuple(_figures(now.state.figures, None if baseline is None else baseline.figures))
    findings = [*_budgets(job, now)]
    if baseline is None:
        findings.append(_no_baseline(job))
    else:
        findings += _against(job, now, baseline)
        findings += _information(figures)
    return Judged(status=status_of(findings, new=baseline is None), figures=figures, findings=ordered(findings))


def _against(job: CheckJob, now: Computed, baseline: Baseline) -> list[Finding]:
    """Growth, what stands behind it, and what was changed."""
    key = "peak_allocated_bytes"
    peak, before = now.state.figures[key], baseline.figures.get(key, 0)
    inputs = list(changed_inputs(job, baseline, now))
    causes: list[Finding] = []
    if any(baseline.figures.get(name) != now.state.figures.get(name) for name in JUDGED):
        causes += hints(baseline, now, peak - before)
        causes += _behind(culprits(baseline.standing, now.state.standing, now.lines), peak)
    return [*_growth(job, now, baseline, causes, inputs), *causes, *inputs]


def label_of(name: str) -> str:
    """`at_peak.activations` as `activations at the peak`."""
    section, _, rest = name.partition(".")
    if section == "at_peak":
        return f"{rest.replace('_', ' ')} at the peak"
    return f"peak in {rest}" if section == "phase_peaks" else LABELS.get(name, name)


def _figures(now: Mapping[str, int], before: Mapping[str, int] | None) -> Iterator[CheckFigure]:
    for name in dict.fromkeys((*now, *(before or {}))):
        known = {name} & {*now} or name.startswith("at_peak.")
        yield CheckFigure(
            name=name,
            label=label_of(name),
            unit=_unit(name),
            # A category that takes nothing is not written down.
            baseline=None if before is None else before.get(name, 0 if name.startswith("at_peak.") else None),
            current=now.get(name, 0) if known else None,
            judged=name in JUDGED,
        )


def _unit(name: str) -> Literal["bytes", "microseconds", "count"]:
    if name == "num_alloc_retries":
        return "count"
    return "microseconds" if name.endswith("_microseconds") else "bytes"


def _budgets(job: CheckJob, now: Computed) -> Iterator[Finding]:
    line = job.lines.get("budget", job.line)
    for budget in job.budgets:
        if budget.fits:
            fit = now.fits[budget.gpus or job.gpus]
            if fit.verdict == "fits":
                continue
            needs = f"up to {format_bytes(fit.used_high_bytes)} of {format_bytes(fit.capacity_bytes)} usable"
            verb = "is tight" if fit.verdict == "tight" else "does not fit"
            said = f"{job.name} {verb} on {budget.gpus or job.gpus}: {fit.reason or needs}"
            yield Finding(level="error", kind="budget", message=said, file=job.path.name, line=line)
        elif budget.figure is not None:
            size = now.state.figures.get(budget.figure)
            if size is None:
                raise InputError(f"budget {budget.text!r}: {label_of(budget.figure)} is not known on {job.gpus}")
            if size > budget.bytes:
                said = (
                    f"{label_of(budget.figure)} is {format_bytes(size)}, over the budget {budget.text!r}"
                    f" by {format_bytes(size - budget.bytes)}"
                )
                over = size - budget.bytes
                yield Finding(
                    level="error", kind="budget", message=said, file=job.path.name, line=line, delta_bytes=over
                )


def _no_baseline(job: CheckJob) -> Finding:
    said = f"no baseline yet: write it with `plan check --update {job.name}` and commit it"
    return Finding(level="notice", kind="information", message=said, file=job.path.name, line=job.line)


def _growth(
    job: CheckJob, now: Computed, baseline: Baseline, causes: Sequence[Finding], inputs: Sequence[Finding]
) -> Iterator[Finding]:
    """One finding for each judged figure beyond its threshold, at the line whose doing its words are."""
    for name in JUDGED:
        before, after = baseline.figures.get(name), now.state.figures.get(name)
        if before is None or after is None:
            continue
        failed, warned = job.fail.passed_by(before, after), job.warn.passed_by(before, after)
        if not (failed or warned):
            continue
        limit = f"fail = {job.fail.text!r}" if failed else f"warn = {job.warn.text!r}"
        why = explained(name, causes, inputs)
        yield Finding(
            level="error" if failed else "warning",
            kind="growth",
            message=f"{label_of(name)} {grown(before, after)}, beyond {limit}{why.words and f'; {why.words}'}",
            file=why.file,
            line=why.line,
            delta_bytes=after - before,
        )


def _behind(found: Sequence[Culprit], peak: int) -> Iterator[Finding]:
    shown = [culprit for culprit in found if abs(culprit.change) >= peak * _LEAST_SHARE][:_SHOWN]
    for culprit in shown:
        standing = culprit.standing
        yield Finding(
            level="notice",
            kind="culprit",
            message=described(culprit),
            file=standing.file or None,
            line=culprit.line if standing.file else None,
            delta_bytes=culprit.change,
            category=standing.category,
            module=standing.module or None,
            operator=standing.operator or None,
        )


def described(culprit: Culprit) -> str:
    """``+4.0 GiB activations: `logits.float()` in train.py:88``, or by module and operator."""
    standing = culprit.standing
    sign = "+" if culprit.change >= 0 else "-"
    size = f"{sign}{format_bytes(abs(culprit.change))} {standing.category.replace('_', ' ')}"
    made = " ".join(filter(None, (standing.module, standing.operator)))
    if standing.file:
        line = "" if culprit.line is None else f":{culprit.line}"
        return f"{size}: `{standing.text}` in {standing.file}{line}" + (f" ({made})" if made else "")
    return f"{size}: {made or 'the model itself'}"


def _information(figures: Sequence[CheckFigure]) -> Iterator[Finding]:
    """The step's expected time, which no threshold applies to."""
    for figure in figures:
        if figure.name == "step_microseconds" and figure.baseline and figure.change is not None:
            share = figure.change / figure.baseline
            if abs(share) >= _STEP_SHARE and figure.current is not None:
                said = (
                    f"expected step time {figure.baseline / 1e6:.3g} -> {figure.current / 1e6:.3g} s ({share:+.1%}),"
                    " for information"
                )
                yield Finding(level="notice", kind="information", message=said)


def status_of(findings: Sequence[Finding], *, new: bool) -> Status:
    """Of the worst finding; `new`: whether there is no baseline."""
    levels = {finding.level for finding in findings}
    if "error" in levels:
        return "fail"
    if "warning" in levels:
        return "warn"
    return "new" if new else "ok"


_LEVELS = ("error", "warning", "notice")
_KINDS = ("problem", "budget", "growth", "measured", "culprit", "input", "information")


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Worst first; within a kind as they were made, which is by weight."""
    return tuple(sorted(findings, key=_order))


def _order(finding: Finding) -> tuple[int, int]:
    return _LEVELS.index(finding.level), _KINDS.index(finding.kind)
