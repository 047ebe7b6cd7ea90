"""What every report of `plan check` says in the same words."""

from collections.abc import Iterator

from gpu_plan.planner.regression.result import CheckFigure, CheckReport, Finding, JobResult, Status
from gpu_plan.planner.units import format_bytes

MARKS: dict[Status, str] = {"ok": "ok", "new": "new", "warn": "WARN", "fail": "FAIL", "error": "ERROR"}
_WORST: tuple[Status, ...] = ("error", "fail", "warn", "new", "ok")
_COUNTED: dict[Status, tuple[str, str]] = {
    "error": ("could not be computed", "could not be computed"),
    "fail": ("fails", "fail"),
    "warn": ("warns", "warn"),
    "new": ("has no baseline yet", "have no baseline yet"),
    "ok": ("is within its limits", "are within their limits"),
}
_MAIN = ("peak_allocated_bytes", "peak_reserved_bytes")


def summary(report: CheckReport) -> str:
    """`3 jobs: 1 fails, 2 are within their limits`."""
    total = len(report.jobs)
    parts = []
    for status in _WORST:
        count = sum(job.status == status for job in report.jobs)
        if count:
            parts.append(f"{count} {_COUNTED[status][count != 1]}")
    return f"{total} job{'s' * (total != 1)}: {', '.join(parts) or 'nothing to check'}"


def worst_first(report: CheckReport) -> tuple[JobResult, ...]:
    """Jobs by status, in the configuration's order among equals."""
    return tuple(sorted(report.jobs, key=lambda job: _WORST.index(job.status)))


def value(figure: CheckFigure, number: int | None) -> str:
    """A figure's number in its unit; a dash where it is not known."""
    if number is None:
        return "-"
    if figure.unit == "bytes":
        return format_bytes(number)
    return f"{number / 1e6:.3g} s" if figure.unit == "microseconds" else f"{number:,}"


def change(figure: CheckFigure) -> str:
    """`+4.0 GiB (+129.0%)`; empty where nothing changed or nothing is known to compare with."""
    if not figure.change:
        return ""
    sign = "+" if figure.change > 0 else "-"
    size = f"{sign}{value(figure, abs(figure.change))}"
    return f"{size} ({figure.change / figure.baseline:+.1%})" if figure.baseline else size


def is_category(figure: CheckFigure) -> bool:
    """Whether it is a category's share of the peak."""
    return figure.name.startswith("at_peak.")


def shown_figures(job: JobResult) -> tuple[CheckFigure, ...]:
    """What is worth a row: judged figures that changed, or all of them where there is nothing to compare with."""
    judged = [figure for figure in job.figures if figure.judged]
    return tuple(figure for figure in judged if figure.change or figure.baseline is None)


def category_changes(job: JobResult) -> tuple[CheckFigure, ...]:
    """Categories of memory at the peak that changed, the largest change first."""
    changed = [figure for figure in job.figures if is_category(figure) and figure.change]
    return tuple(sorted(changed, key=lambda figure: -abs(figure.change or 0)))


def category_name(figure: CheckFigure) -> str:
    """`optimizer state`."""
    return figure.name.removeprefix("at_peak.").replace("_", " ")


def unchanged(job: JobResult) -> str:
    """What an undisturbed job takes: `peak allocated 3.1 GiB, peak reserved 3.4 GiB`."""
    by_name = {figure.name: figure for figure in job.figures}
    known = [by_name[name] for name in _MAIN if name in by_name and by_name[name].current is not None]
    return ", ".join(f"{figure.label} {value(figure, figure.current)}" for figure in known)


def place(finding: Finding) -> str:
    """`train.py:88`, `train.py`, or nothing."""
    if finding.file is None:
        return ""
    return finding.file if finding.line is None else f"{finding.file}:{finding.line}"


def job_place(job: JobResult) -> str:
    """Where the job's table stands."""
    return job.file if job.line is None else f"{job.file}:{job.line}"


def by_worst(report: CheckReport) -> Iterator[tuple[JobResult, Finding]]:
    """Every finding with its job: errors of all jobs, then warnings, then notices; the worse job first."""
    for level in ("error", "warning", "notice"):
        for job in worst_first(report):
            for finding in job.findings:
                if finding.level == level:
                    yield job, finding


def versions(report: CheckReport) -> str:
    """`torch 2.13.0, transformers 5.23.0`."""
    return ", ".join(f"{name} {version}" for name, version in report.versions.items())


def note(job: JobResult) -> str:
    """What was done beside comparing: a baseline that was written, figures that were kept."""
    notes = [
        *(["baseline written"] if job.updated else []),
        *(["nothing changed, figures kept"] if job.cached else []),
    ]
    return ", ".join(notes)
