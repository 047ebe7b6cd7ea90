"""`plan report FILE.json`: what a file kept of a plan or a sweep, in any form of report, without planning again."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_plan.planner.errors import InputError, UsageError
from gpu_plan.planner.plan.codec import load_object
from gpu_plan.planner.plan.document import PlanDocument, check_version

if TYPE_CHECKING:
    from gpu_plan.planner.sweep.document import SweepDocument

FORMATS = ("text", "json", "md", "csv", "html")


def read_kept(content: bytes, where: str) -> "PlanDocument | SweepDocument | None":
    """The plan document, saved plan or sweep in `content`; None where it is something else.

    InputError in one line for a file of another version, or one that was cut off or edited.
    """
    value = load_object(content, where)
    kind = value.get("document")
    if kind == "sweep":
        from gpu_plan.planner.sweep.document import sweep_from_json

        return sweep_from_json(content, where)
    if kind == "saved-plan":
        return _of_saved(content, where)
    if kind is not None or not {"model", "cluster", "workload"} & set(value):
        return None
    check_version(value, where)
    from gpu_plan.planner.plan.document import from_json

    return from_json(content, where)


def rendered_file(document: "PlanDocument | SweepDocument", args: argparse.Namespace, path: Path) -> str:
    """The report of a kept document in the form of `args`; it ends with a newline."""
    form = "json" if args.json else args.format
    if form not in FORMATS:
        raise UsageError(f"--format {form} is for checks: {path} holds a plan; use {', '.join(FORMATS)}")
    _check_packages(form)
    ascii_only = args.ascii or not (args.output is not None or (sys.stdout.encoding or "").lower().startswith("utf"))
    text = (
        _plan(document, form, ascii_only)
        if isinstance(document, PlanDocument)
        else sweep_report(document, form, ascii_only)
    )
    return text if text.endswith("\n") else text + "\n"


def _check_packages(form: str) -> None:
    from gpu_plan.reports.requires import need_matplotlib, need_pandas

    if form in ("csv", "html"):
        (need_pandas if form == "csv" else need_matplotlib)(f"--format {form}")


def _of_saved(content: bytes, where: str) -> PlanDocument:
    """A saved plan as a document of that one plan."""
    from gpu_plan.planner.plan.saved import saved_from_json

    saved = saved_from_json(content, where)
    if saved.plan.verdict == "no":
        raise InputError(f"{where} holds a plan that does not fit: only those that fit are saved")
    return PlanDocument(
        command=saved.command,
        created_with=saved.created_with,
        model=saved.model,
        cluster=saved.cluster,
        workload=saved.workload,
        plans=(saved.plan,),
        rejected=(),
        assumptions=saved.assumptions,
        warnings=saved.warnings,
    )


def _plan(document: PlanDocument, form: str, ascii_only: bool) -> str:
    if form == "json":
        from gpu_plan.reports.plan.as_json import render_json

        return render_json(document)
    if form == "md":
        from gpu_plan.reports.plan.markdown import render_markdown

        return render_markdown(document)
    if form == "csv":
        from gpu_plan.reports.tables.as_csv import render_csv

        return render_csv(document)
    if form == "html":
        from gpu_plan.reports.html.render import render_html

        return render_html(document)
    from gpu_plan.reports.plan.terminal import render_terminal

    return render_terminal(document, ascii_only=ascii_only)


def sweep_report(document: "SweepDocument", form: str, ascii_only: bool = False) -> str:
    """A sweep in one of FORMATS."""
    if form == "json":
        from gpu_plan.planner.sweep.document import sweep_to_json

        return sweep_to_json(document)
    if form == "md":
        from gpu_plan.reports.sweep.markdown import render_sweep_markdown

        return render_sweep_markdown(document)
    if form == "csv":
        from gpu_plan.reports.sweep.words import sweep_rows
        from gpu_plan.reports.tables.as_csv import csv_of

        return csv_of(sweep_rows(document))
    if form == "html":
        from gpu_plan.reports.html.sweep import render_sweep_html

        return render_sweep_html(document)
    from gpu_plan.reports.sweep.text import render_sweep_text

    return render_sweep_text(document, ascii_only=ascii_only)
