"""A sweep as GitHub-flavoured Markdown."""

from collections.abc import Iterable, Sequence

from gpu_plan.planner.sweep.document import SweepDocument
from gpu_plan.reports.clean import markdown, markdown_code
from gpu_plan.reports.sweep.words import VERDICTS, header, point_cells, reasons


def render_sweep_markdown(document: SweepDocument) -> str:
    """Markdown that ends with a newline: a line for each point, then why others have no plan."""
    names = [axis.name for axis in document.axes]
    blocks = [f"# Sweep: {markdown(' × '.join(names))}"]
    rows = [(*point.values, VERDICTS[point.verdict], *point_cells(point)) for point in document.points]
    blocks.append(_table((*names, "", *header(document)), rows))
    told = reasons(document)
    if told:
        blocks += ["## No plan", "\n".join(f"- {markdown(values)}: {markdown(reason)}" for values, reason in told)]
    if document.warnings:
        blocks += ["## Warnings", "\n".join(f"- {markdown(warning)}" for warning in document.warnings)]
    blocks.append(f"Made with {markdown_code(document.command)}.")
    return "\n\n".join(blocks) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [[markdown(cell) for cell in row] for row in (header, *rows)]
    rule = ["---" if name in ("plan", "", "ckpt") else "---:" for name in header]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (lines[0], rule, *lines[1:]))
