"""A run's report as GitHub-flavoured Markdown."""

from collections.abc import Iterable, Sequence

from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.reports.clean import markdown
from gpu_plan.reports.run import words as run_words
from gpu_plan.reports.run.compare import RunComparison


def render_run_markdown(run: WholeRun, comparison: RunComparison) -> str:
    """Markdown that ends with a newline."""
    blocks = [f"# Run {markdown(run_words.title(run))}"]
    blocks.append(_bullets(f"**{name}:** {markdown(text)}" for name, text in run_words.facts(run)))
    for heading, header, rows in run_words.tables(comparison):
        blocks += [f"## {heading}", _table(header, rows)]
    if comparison.ranks:
        header, *rank_rows = run_words.rank_table(comparison)
        blocks += ["## Ranks of the latest attempt", _table(header, rank_rows)]
    attempts = run.record.attempts
    if attempts:
        attempt_rows = [run_words.attempt_row(attempt, run.last_sign) for attempt in attempts]
        blocks += ["## Attempts", _table(run_words.ATTEMPT_HEADER, attempt_rows)]
        notes = [f"{a.number}: {markdown(text)}" for a in attempts for text in run_words.attempt_notes(a)]
        blocks += [_bullets(notes)] if notes else []
    lists = (
        ("Deviations from the plan", run_words.deviations(run)),
        ("Notes", [*run_words.rank_notes(run, comparison.ranks), *comparison.notes]),
    )
    for heading, texts in lists:
        if texts:
            blocks += [f"## {heading}", _bullets(markdown(text) for text in texts)]
    return "\n\n".join(blocks) + "\n"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    escaped = [[markdown(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *escaped))
