"""`plan check` for a terminal and a log: worst first, one line for what did not change."""

import textwrap
from collections.abc import Callable, Iterator

from gpu_plan.planner.regression.result import CheckReport, Finding, JobResult
from gpu_plan.reports.check import words
from gpu_plan.reports.clean import ascii_line, keep_columns, no_command, one_line

_WIDTH = 100
_MARK = 6


def render_check_text(report: CheckReport, *, ascii_only: bool = False) -> str:
    """The report as plain text of at most 100 columns, but for names that are longer. Ends with a newline."""
    clean: Callable[[str], str] = ascii_line if ascii_only else one_line
    lines = _wrapped(f"plan check: {words.summary(report)}", "", "")
    told = False
    for job in words.worst_first(report):
        said = list(_job(job, clean))
        # Jobs of one line stand together, below those that have more to say.
        lines += ["", *said] if told and len(said) == 1 else said
        told = len(said) > 1
    return "\n".join(no_command(keep_columns(line, clean)) for line in lines) + "\n"


def _job(job: JobResult, clean: Callable[[str], str]) -> Iterator[str]:
    quiet = job.status == "ok" and not job.findings and not words.shown_figures(job)
    facts = ", ".join(filter(None, (words.unchanged(job) if quiet else "", words.note(job))))
    name = clean(job.name)
    head = f"{words.MARKS[job.status]:<{_MARK}}{name} ({clean(words.job_place(job))})"
    if not quiet:
        yield ""
    yield head + (f": {facts}" if facts else "")
    if quiet:
        return
    if job.job:
        yield from _wrapped(clean(job.job), "", " " * _MARK)
    yield from _figures(job)
    for finding in job.findings:
        yield from _finding(finding, clean)


def _figures(job: JobResult) -> Iterator[str]:
    rows = [
        (figure.label, words.value(figure, figure.baseline), words.value(figure, figure.current), words.change(figure))
        for figure in words.shown_figures(job)
    ]
    if rows:
        label, before, after = (max(len(row[column]) for row in rows) for column in range(3))
        for row in rows:
            was = f"{row[1]:>{before}}  ->  " if any(other[1] != "-" for other in rows) else ""
            yield f"{' ' * _MARK}{row[0]:<{label}}  {was}{row[2]:>{after}}  {row[3]}".rstrip()
    categories = [f"{words.category_name(figure)} {_signed(figure.change)}" for figure in words.category_changes(job)]
    if categories:
        yield from _wrapped(f"at the peak: {', '.join(categories)}", "", " " * _MARK)


def _signed(nbytes: int | None) -> str:
    from gpu_plan.planner.units import format_bytes

    return f"{'+' if (nbytes or 0) > 0 else '-'}{format_bytes(abs(nbytes or 0))}"


def _finding(finding: Finding, clean: Callable[[str], str]) -> Iterator[str]:
    place = clean(words.place(finding))
    said = clean(finding.message)
    # A message that names the line itself does not need it twice.
    where = f"{place}: " if place and place not in said else ""
    label = "" if finding.level == "notice" else f"{finding.level}: "
    yield from _wrapped(f"{where}{said}", label, " " * _MARK)


def _wrapped(text: str, label: str, indent: str) -> list[str]:
    return textwrap.wrap(
        label + text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
