"""A plan, or a sweep, as CSV: a line for each candidate or point, columns by name; made by pandas."""

from collections.abc import Iterable

from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.reports.tables.frames import Row, cell, frame_of, plan_rows


def render_csv(document: PlanDocument) -> str:
    """One line for each candidate, plans best first; bytes and seconds. UsageError where pandas is not installed."""
    return csv_of(plan_rows(document))


_FORMULA = ("=", "+", "-", "@")


def _no_formula(value: object) -> object:
    """Text that a spreadsheet would compute stands behind an apostrophe, which it shows as text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def csv_of(rows: Iterable[Row]) -> str:
    """Rows as CSV with a header; what is missing is empty, texts are on one line."""
    cleaned = [{name: _no_formula(cell(value)) for name, value in row.items()} for row in rows]
    text: str = frame_of(cleaned).to_csv(index=False, lineterminator="\n")
    return text
