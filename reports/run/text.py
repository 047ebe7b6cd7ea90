"""A run's report as plain text."""

from collections.abc import Callable, Sequence

from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.reports.clean import ascii_line, one_line
from gpu_plan.reports.run import words as run_words
from gpu_plan.reports.run.compare import RunComparison


def render_run_text(run: WholeRun, comparison: RunComparison, *, ascii_only: bool = False) -> str:
    """Lines that end with a newline."""
    clean = ascii_line if ascii_only else one_line
    facts = run_words.facts(run)
    wide = max(len(name) for name, _ in facts)
    blocks = [[clean(run_words.title(run)), *(f"{name:{wide}}  {clean(text)}" for name, text in facts)]]
    for heading, header, rows in run_words.tables(comparison):
        blocks.append([heading, *columns([header, *rows], clean)])
    if comparison.ranks:
        blocks.append(["Ranks of the latest attempt", *columns(run_words.rank_table(comparison), clean)])
    attempts = run.record.attempts
    if attempts:
        attempt_rows = [run_words.attempt_row(attempt, run.last_sign) for attempt in attempts]
        block = ["Attempts", *columns([run_words.ATTEMPT_HEADER, *attempt_rows], clean)]
        block += [f"  {a.number}: {clean(text)}" for a in attempts for text in run_words.attempt_notes(a)]
        blocks.append(block)
    lists = (
        ("Deviations from the plan", run_words.deviations(run)),
        ("Notes", [*run_words.rank_notes(run, comparison.ranks), *comparison.notes]),
    )
    blocks += [[heading, *(f"  - {clean(text)}" for text in texts)] for heading, texts in lists if texts]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def columns(rows: Sequence[Sequence[str]], clean: Callable[[str], str] = one_line) -> list[str]:
    """Rows as lines of equal columns: the first to the left, numbers' to the right."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    right = [all(_numeric(row[at]) for row in cells[1:]) for at in range(len(widths))]
    return [
        ("  " + "  ".join(_padded(cell, widths[at], right[at]) for at, cell in enumerate(row))).rstrip()
        for row in cells
    ]


def _numeric(cell: str) -> bool:
    return cell == run_words.UNKNOWN or cell[:1].isdigit()


def _padded(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)
