"""The section of a plan's page about time and cost."""

from planner.plan import Candidate, PlanDocument, SpeedFigures
from reports import words
from reports.cost import cost_lines, dollars, unit_words
from reports.html_markup import Html, table, tag
from reports.html_page import bullets, section


def speed_section(document: PlanDocument) -> Html:
    """How long a step takes, from what, and what it costs where prices are known."""
    best = document.best
    if best is None or best.speed is None:
        return Html("")
    return section(
        "Time and cost", tag("p", " · ".join(words.rate_words(best))), _time_parts(best.speed),
        _cost(document, best),
    )  # fmt: skip


def _time_parts(speed: SpeedFigures) -> Html:
    rows = [(name.replace("_", " "), words.seconds(value)) for name, value in speed.parts.items() if value]
    if not rows:
        return Html("")
    return table(("part of a step (they overlap)", "expected"), rows, label="parts of a step")


def _cost(document: PlanDocument, best: Candidate) -> Html:
    lines = cost_lines(document, best)
    if not lines:
        return tag("p", "No price is known for this device: no cost is told.", class_="muted")
    rows = [
        (
            line.provider,
            dollars(line.device_hour),
            dollars(line.job_hour),
            dollars(line.per_unit),
            f"{dollars(line.low)} to {dollars(line.high)}",
            line.date,
        )
        for line in lines
    ]
    heads = ("rented from", "device, hour", "all, hour", unit_words(document), "interval of the speed", "price of")
    sources = tag(
        "details", tag("summary", "sources of the prices"), bullets(f"{x.provider}: {x.source}" for x in lines)
    )
    return Html(table(heads, rows, label="cost") + sources)
