"""Plans, sweeps and runs as fragments that a notebook shows: own style, no network, no scripts."""

import importlib.util
import re

from gpu_plan.executor.records.run import RunRecord
from gpu_plan.executor.records.whole import WholeRun
from gpu_plan.planner.plan.document import PlanDocument
from gpu_plan.planner.sweep.document import SweepDocument
from gpu_plan.reports.html.page import bullets, facts
from gpu_plan.reports.html.plan import plan_table, verdict_head
from gpu_plan.reports.html.run import run_head
from gpu_plan.reports.html.style import CSS
from gpu_plan.reports.html.sweep import point_table, sweep_plots
from gpu_plan.reports.markup import Child, Html, table, tag
from gpu_plan.reports.plan import words
from gpu_plan.reports.plan.groups import group_rejected
from gpu_plan.reports.run import words as run_words

_PLANS = 5
_ROOT = ".gpu-plan" * 3
"""Said thrice: Jupyter's own rules for tables name two classes, and would win over one."""
_UNDO = "dl{width:auto;overflow:visible}dt,dd{display:block;float:none;width:auto;font-weight:400}"
"""What Jupyter lays on lists of terms: floats of a fifth and four fifths of the width."""


def plan_fragment(document: PlanDocument) -> str:
    """Verdict, key figures, memory bars where matplotlib is installed, the best plans, why others lose."""
    parts: list[Child] = [*verdict_head(document), _bars(document)]
    if document.plans:
        parts.append(plan_table(document, _PLANS))
    lost = group_rejected(document.rejected, document.plans)[:3]
    if lost:
        parts += [tag("p", "Does not fit:", class_="muted"), bullets(group.reason for group in lost)]
    if document.warnings:
        parts += [tag("p", "Warnings:", class_="muted"), bullets(document.warnings)]
    return fragment(*parts)


def sweep_fragment(document: SweepDocument) -> str:
    """Heat map and curves where matplotlib is installed, and a line for each point."""
    return fragment(sweep_plots(document) if _draws() else None, point_table(document))


def run_record_fragment(record: RunRecord) -> str:
    """A run's attempts and how it ended."""
    return run_fragment(WholeRun(folder="", record=record, supervisor_alive=True))


def run_fragment(run: WholeRun) -> str:
    """A run against its plan, and its attempts."""
    from gpu_plan.reports.run.compare import compare_run

    comparison = compare_run(run)
    told = [(name, text) for name, text in run_words.facts(run) if text]
    parts: list[Child] = [*run_head(run), facts(told)]
    parts += [table(header, rows, label=heading) for heading, header, rows in run_words.tables(comparison)]
    if run.record.attempts:
        rows = [run_words.attempt_row(attempt, run.last_sign) for attempt in run.record.attempts]
        parts.append(table(run_words.ATTEMPT_HEADER, rows, text_columns=5, label="attempts"))
    return fragment(*parts)


def fragment(*children: Child) -> str:
    """Children under the page's style, which applies to nothing else of the notebook."""
    return tag("div", tag("style", Html(scoped(CSS + _UNDO, _ROOT))), tag("div", *children, class_="gpu-plan"))


_RULE = re.compile(r"(@?)([^{}@]+)\{([^{}]*)\}")


def scoped(css: str, root: str) -> str:
    """A style sheet whose rules apply below `root` only; what is about printed pages is left out."""

    def below(found: re.Match[str]) -> str:
        if found[1]:
            return ""
        selectors = ",".join(_below(selector.strip(), root) for selector in found[2].split(","))
        return f"{selectors}{{{found[3]}}}"

    return _RULE.sub(below, css)


def _below(selector: str, root: str) -> str:
    return root if selector in (":root", "body", "main") else f"{root} {selector}"


def _bars(document: PlanDocument) -> Html:
    shown = words.focus(document)
    if shown is None or shown.memory is None or not _draws():
        return Html("")
    from gpu_plan.reports.html.page import plot
    from gpu_plan.reports.plots.memory import breakdown

    return plot("memory", lambda width: breakdown(document, width, _PLANS), "Memory of the worst rank")


def _draws() -> bool:
    return importlib.util.find_spec("matplotlib") is not None
