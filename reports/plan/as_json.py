"""The plan document itself: what `--json` and `--format json` print."""

from gpu_plan.planner.plan.document import PlanDocument, to_json


def render_json(document: PlanDocument) -> str:
    """JSON with a final newline, the same bytes for the same document."""
    return to_json(document) + "\n"
