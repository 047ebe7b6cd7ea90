"""The section of a plan's page about time and cost."""

from collections.abc import Sequence

from gpu_plan.planner.plan.document import Candidate, PlanDocument, SpeedFigures
from gpu_plan.planner.plan.drawn.lanes import Lane
from gpu_plan.reports.durations import seconds
from gpu_plan.reports.html.page import bullets, plot, section
from gpu_plan.reports.markup import Html, table, tag
from gpu_plan.reports.plan import words
from gpu_plan.reports.plan.cost import cost_lines, dollars, unit_words


def speed_section(document: PlanDocument, lanes: Sequence[Lane] = ()) -> Html:
    """How long a step takes, from what, and what it costs where prices are known. `lanes`: the step, stream by
    stream, where it is at hand."""
    best = document.best
    if best is None or best.speed is None:
        return Html("")
    return section(
        "Time and cost", tag("p", " · ".join(words.rate_words(best))), _streams(lanes, best),
        _time_parts(best.speed), _cost(document, best),
    )  # fmt: skip


def _streams(lanes: Sequence[Lane], best: Candidate) -> Html:
    """What runs when; nothing where the step is not at hand, or its stages are drawn beside their memory."""
    if not lanes or best.stages or best.speed is None:
        return Html("")
    from gpu_plan.reports.plots.streams import streams_panel

    told = best.speed.scaling or "What computes, what is sent meanwhile, and what is waited for."
    return plot("streams", lambda width: streams_panel(lanes, width), "One step, stream by stream", told)


def _time_parts(speed: SpeedFigures) -> Html:
    rows = [(name.replace("_", " "), seconds(value)) for name, value in speed.parts.items() if value]
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
