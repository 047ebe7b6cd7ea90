"""`plan check` as GitHub-flavoured Markdown, for a pull request and `$GITHUB_STEP_SUMMARY`."""

from collections.abc import Iterable, Iterator, Sequence

from gpu_plan.planner.regression.result import CheckReport, Finding, JobResult
from gpu_plan.reports.check import words
from gpu_plan.reports.clean import markdown, markdown_code

_MARKS = {"ok": "✅ ok", "new": "🆕 new", "warn": "⚠️ warn", "fail": "❌ fail", "error": "❌ error"}
_LEVELS = {"error": "**error:** ", "warning": "**warning:** ", "notice": ""}


def render_check_markdown(report: CheckReport) -> str:
    """Markdown that ends with a newline: a table of all jobs, then each one that has something to say."""
    blocks = [f"## plan check: {markdown(words.summary(report))}"]
    if report.jobs:
        blocks.append(
            _table(("", "job", "peak allocated", "peak reserved", "worst"), map(_row, words.worst_first(report)))
        )
    for job in words.worst_first(report):
        if job.status != "ok" or words.shown_figures(job):
            blocks += _job(job)
    blocks.append(f"Made with {markdown_code(report.command)} ({markdown(words.versions(report))}).")
    return "\n\n".join(blocks) + "\n"


def _row(job: JobResult) -> Sequence[str]:
    by_name = {figure.name: figure for figure in job.figures}
    cells = []
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        figure = by_name.get(name)
        if figure is None:
            cells.append("")
            continue
        change = words.change(figure)
        cells.append(markdown(words.value(figure, figure.current)) + (f"<br>{markdown(change)}" if change else ""))
    worst = job.worst
    said = markdown(worst.message) if worst is not None and worst.level != "notice" else markdown(words.note(job))
    return _MARKS[job.status], markdown_code(job.name, in_table=True), *cells, said


def _job(job: JobResult) -> Iterator[str]:
    yield f"### {_MARKS[job.status]}: {markdown(job.name)}"
    if job.job:
        yield markdown(job.job)
    rows = [
        (
            markdown(figure.label),
            words.value(figure, figure.baseline),
            words.value(figure, figure.current),
            markdown(words.change(figure)),
        )
        for figure in (*words.shown_figures(job), *words.category_changes(job))
    ]
    if rows:
        yield _table(("", "baseline", "now", "change"), rows, right=True)
    if job.findings:
        yield "\n".join(f"- {_finding(finding)}" for finding in job.findings)


def _finding(finding: Finding) -> str:
    place = words.place(finding)
    where = f"{markdown_code(place)}: " if place and place not in finding.message else ""
    return f"{_LEVELS[finding.level]}{where}{markdown(finding.message)}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: bool = False) -> str:
    """Cells are escaped by the caller; all columns but the first stand on the right with `right`."""
    rule = ["---", *["---:" if right else "---"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))
