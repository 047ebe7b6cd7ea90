"""A plan as one HTML file that needs nothing from elsewhere: to be attached, archived and printed."""

from collections.abc import Sequence

from gpu_plan.planner.plan.codec import dump
from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.planner.plan.drawn.lanes import Lane
from gpu_plan.planner.plan.timeline import Timeline
from gpu_plan.reports.html.page import page
from gpu_plan.reports.html.plan import (
    alternatives_section,
    basis_section,
    command_section,
    explain_section,
    memory_section,
    timeline_section,
    verdict_head,
)
from gpu_plan.reports.html.speed import speed_section
from gpu_plan.reports.markup import embedded_json, tag
from gpu_plan.reports.plan import words
from gpu_plan.reports.requires import need_matplotlib

JSON_ID = "plan-document"


def render_html(
    document: PlanDocument, *, timeline: Timeline | None = None, lanes: Sequence[Lane] = (), top: int = 5
) -> str:
    """The whole page; the same bytes for the same document. `top` plans are drawn as bars.

    `timeline`, `lanes`: of the best plan's step, where it is at hand. The document itself is embedded as JSON in the
    element `plan-document`. UsageError where matplotlib is not installed.
    """
    need_matplotlib("an HTML report")
    return page(
        f"{document.model.id} on {document.cluster['spec']}",
        verdict_head(document),
        memory_section(document, top),
        timeline_section(timeline),
        alternatives_section(document, top),
        speed_section(document, lanes),
        basis_section(document),
        explain_section(words.focus(document)),
        command_section(document),
        embedded_json(dump(document, indent=None), JSON_ID),
        _footer(document),
    )


def _footer(document: PlanDocument) -> str:
    made_with = ", ".join(f"{name} {version}" for name, version in document.created_with.items())
    return tag("footer", f"Made with {made_with}. GiB is 1024³ bytes. Figures are estimates unless they say otherwise.")
