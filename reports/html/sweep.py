"""A sweep as one HTML file."""

from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.sweep.document import SweepDocument, SweepPoint
from gpu_plan.reports.clean import one_line
from gpu_plan.reports.html.page import bullets, page, plot, section
from gpu_plan.reports.html.plan import command_block
from gpu_plan.reports.markup import Child, Html, embedded_json, join, table, tag
from gpu_plan.reports.requires import need_matplotlib
from gpu_plan.reports.sweep.words import VERDICTS, fits, header, point_cells, reasons

JSON_ID = "sweep-document"


def render_sweep_html(document: SweepDocument) -> str:
    """The whole page, the sweep itself embedded as JSON in the element `sweep-document`. UsageError
    where matplotlib is not installed."""
    need_matplotlib("an HTML report")
    names = " × ".join(one_line(axis.name) for axis in document.axes)
    models = sorted({point.model for point in document.points if point.model})
    title = f"{models[0]}: {names}" if len(models) == 1 else names
    good = sum(point.verdict == "fits" for point in document.points)
    verdict = "fits" if good else "no"
    return page(
        title,
        tag("div", f"{good} of {len(document.points)} fit", class_=f"verdict {verdict}"),
        tag("h1", title),
        sweep_plots(document),
        section("Every point", point_table(document)),
        section("No plan", bullets(f"{values}: {reason}" for values, reason in reasons(document))),
        section("Warnings", bullets(document.warnings)),
        section("Command", command_block(document.command)),
        embedded_json(dump(document, indent=None), JSON_ID),
        tag("footer", ", ".join(f"{name} {version}" for name, version in document.created_with.items())),
    )


def sweep_plots(document: SweepDocument) -> Html:
    """The heat map where there are two options or more, and curves along the first where its values are numbers."""
    from gpu_plan.reports.plots.sweep import curves, heatmap, is_curve

    drawn: list[Child] = []
    if len(document.axes) > 1:
        caption = "Share of the capacity in use on the worst rank; under it the best plan and its speed on each GPU"
        drawn.append(plot("heat", lambda width: heatmap(document, width, titled=False), "Heat map", caption))
    if is_curve(document) or len(document.axes) == 1:
        caption = "Best plan of every point; hollow marks do not fit, the red line is the capacity"
        drawn.append(plot("curve", lambda width: curves(document, width, titled=False), "Memory and speed", caption))
    return join(drawn)


def point_table(document: SweepDocument) -> Html:
    """A line for each point."""
    names = [axis.name for axis in document.axes]
    rows = [_row(point) for point in document.points]
    return table((*names, "verdict", *header(document)), rows, text_columns=len(names) + 4, label="points")


def _row(point: SweepPoint) -> list[Child]:
    verdict = tag("b", VERDICTS[point.verdict], class_=point.verdict if point.verdict != "refused" else "muted")
    cells: list[Child] = [*point.values, verdict]
    return [*cells, *(cell if fits(point) else tag("span", cell, class_="muted") for cell in point_cells(point))]
