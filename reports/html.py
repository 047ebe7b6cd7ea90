"""A plan as one HTML file that needs nothing from elsewhere: to be attached, archived and printed."""

from planner.plan import PlanDocument
from planner.plan_codec import dump
from planner.plan_timeline import Timeline
from reports import words
from reports.html_markup import embedded_json, tag
from reports.html_page import page
from reports.html_plan import (
    alternatives_section,
    basis_section,
    command_section,
    explain_section,
    memory_section,
    timeline_section,
    verdict_head,
)
from reports.html_speed import speed_section
from reports.requires import need_matplotlib

JSON_ID = "plan-document"


def render_html(document: PlanDocument, *, timeline: Timeline | None = None, top: int = 5) -> str:
    """The whole page; the same bytes for the same document. `top` plans are drawn as bars.

    `timeline`: of the best plan's step, where it is at hand. The document itself is embedded as JSON in the element
    `plan-document`. UsageError where matplotlib is not installed.
    """
    need_matplotlib("an HTML report")
    return page(
        f"{document.model.id} on {document.cluster['spec']}",
        verdict_head(document),
        memory_section(document, top),
        timeline_section(timeline),
        alternatives_section(document, top),
        speed_section(document),
        basis_section(document),
        explain_section(words.focus(document)),
        command_section(document),
        embedded_json(dump(document, indent=None), JSON_ID),
        _footer(document),
    )


def _footer(document: PlanDocument) -> str:
    made_with = ", ".join(f"{name} {version}" for name, version in document.created_with.items())
    return tag("footer", f"Made with {made_with}. GiB is 1024³ bytes. Figures are estimates unless they say otherwise.")
