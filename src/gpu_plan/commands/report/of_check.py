"""A check's report in the format that was asked for; for GitHub, its summary beside the annotations (I/O)."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_plan.planner.regression.result import CheckReport

FORMATS = ("text", "json", "junit", "md", "github")
_SUMMARY_MOST = 1_000_000
"""GitHub refuses a step's summary beyond 1 MiB, all of it."""


def rendered(report: "CheckReport", name: str, *, ascii_only: bool = False) -> str:
    """The report in one of FORMATS; it ends with a newline."""
    if name == "json":
        from gpu_plan.planner.regression.result import report_to_json

        return report_to_json(report) + "\n"
    if name == "junit":
        from gpu_plan.reports.check.junit import render_check_junit

        return render_check_junit(report)
    if name == "md":
        from gpu_plan.reports.check.markdown import render_check_markdown

        return render_check_markdown(report)
    if name == "github":
        from gpu_plan.reports.check.github import render_check_github

        return render_check_github(report, os.environ.get("GITHUB_WORKSPACE"))
    from gpu_plan.reports.check.text import render_check_text

    encodable = (sys.stdout.encoding or "").lower().startswith("utf")
    return render_check_text(report, ascii_only=ascii_only or not encodable)


def tell_github(report: "CheckReport") -> None:
    """Adds the report to the step's summary, where a runner names a file for it; a note where it cannot be written."""
    from gpu_plan.reports.check.markdown import render_check_markdown

    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return
    text = render_check_markdown(report)
    content = text.encode()
    if len(content) > _SUMMARY_MOST:
        whole = content[:_SUMMARY_MOST].decode("utf-8", "ignore").rpartition("\n")[0]
        content = f"{whole}\n\n(cut: GitHub shows no more)\n".encode()
    try:
        with Path(target).open("ab") as file:
            file.write(content)
    except OSError as problem:
        print(f"plan: the step's summary cannot be written: {problem}", file=sys.stderr)
