"""`plan check` as GitHub's workflow commands: annotations at the lines that a reader can act on, worst first.

Escaped as actions/toolkit packages/core/src/command.ts does (escapeData, escapeProperty).
"""

import os
from pathlib import Path

from gpu_plan.planner.regression.result import CheckReport, Finding, JobResult
from gpu_plan.reports.check import words
from gpu_plan.reports.clean import one_line

_MOST = 10
"""GitHub shows this many annotations of each level for one step, and drops the others without a word."""
_LEVELS = ("error", "warning", "notice")


def render_check_github(report: CheckReport, workspace: str | None = None) -> str:
    """One command per line, and a line for the log at the end. Ends with a newline.

    `workspace`: folder of the checked-out repository (`$GITHUB_WORKSPACE`), which annotations' files are relative to;
    None where it is the report's own root.
    """
    prefix = _prefix(report.root, workspace)
    lines: list[str] = []
    for level in _LEVELS:
        found = [(job, finding) for job, finding in words.by_worst(report) if finding.level == level]
        shown = found if len(found) <= _MOST else found[: _MOST - 1]
        lines += [_annotation(job, finding, prefix) for job, finding in shown]
        if len(shown) < len(found):
            lines.append(_folded(found[len(shown) :], level))
    lines.append(f"plan check: {words.summary(report)}")
    return "\n".join(lines) + "\n"


def _annotation(job: JobResult, finding: Finding, prefix: str) -> str:
    properties: dict[str, str] = {}
    # What no line of the project is behind is annotated without one: GitHub shows it beside the run.
    if finding.file is not None:
        properties["file"] = os.path.normpath(prefix + finding.file).replace(os.sep, "/")
        if finding.line is not None:
            properties["line"] = str(finding.line)
    properties["title"] = f"plan check: {job.name}"
    return command(finding.level, properties, finding.message)


def _folded(rest: list[tuple[JobResult, Finding]], level: str) -> str:
    """All that does not find room in one annotation more."""
    names = list(dict.fromkeys(job.name for job, _ in rest))
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more jobs" if len(names) > 5 else "")
    first = rest[0][1].message
    return command(level, {"title": "plan check"}, f"{len(rest)} more in {listed}; the first: {first}")


def command(name: str, properties: dict[str, str], message: str) -> str:
    """`::error file=train.py,line=88,title=...::message`."""
    written = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {written}::{_data(message)}"


def _data(text: str) -> str:
    return one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _prefix(root: str, workspace: str | None) -> str:
    """What stands before a file of the project in a path that GitHub understands."""
    if not workspace:
        return ""
    folder, home = Path(root).resolve(), Path(workspace).resolve()
    if folder == home:
        return ""
    return f"{folder.relative_to(home).as_posix()}/" if folder.is_relative_to(home) else f"{folder.as_posix()}/"
