"""The doctor's report: for a terminal, as JSON and as Markdown."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpu_plan.executor.doctor.examination import Examination
from gpu_plan.executor.doctor.finding import SEVERITIES, Finding, Severity
from gpu_plan.executor.doctor.machine import Check
from gpu_plan.executor.doctor.trial.judge import Trial, TrialSpeed
from gpu_plan.planner.plan.codec import plain
from gpu_plan.reports.clean import ascii_line, markdown, markdown_code, one_line

_WIDTH = 100
_TITLES: Mapping[Severity, tuple[str, str]] = {
    "error": ("error", "errors"),
    "warning": ("warning", "warnings"),
    "note": ("note", "notes"),
}
_MARKS = {"ok": "ok", "unknown": "?", "found": "!"}


def render_text(examination: Examination, *, ascii_only: bool = False) -> str:
    """Findings by severity, each with its place, why and fix; then what was looked at. Ends with a newline."""
    lines = [_summary(examination)]
    for severity in SEVERITIES:
        found = [finding for finding in examination.findings if finding.severity == severity]
        if found:
            lines += ["", _TITLES[severity][1].capitalize()]
            for finding in found:
                lines += _paragraph(finding)
    if examination.checks is not None:
        lines += ["", "Machine" if examination.where == "this machine" else "Nodes", *_machine(examination.checks)]
    if examination.trial is not None:
        lines += ["", *_trial(examination.trial)]
    return "\n".join(_clean(line, ascii_only) for line in lines) + "\n"


def _clean(line: str, ascii_only: bool) -> str:
    """A line without what a terminal would take as its own; its columns stay."""
    pieces = re.split(r"( {2,})", line)
    return "".join(piece if piece.isspace() else (ascii_line if ascii_only else one_line)(piece) for piece in pieces)


def _summary(examination: Examination) -> str:
    looked = [shown_path(examination.script)] if examination.script is not None else []
    looked += [examination.where] if examination.checks is not None else []
    looked += ["a trial launch"] if examination.trial is not None else []
    counts = [_counted(examination, severity) for severity in SEVERITIES if examination.count(severity)]
    under = f" ({examination.plan})" if examination.plan else ""
    return f"{', '.join(looked)}{under}: {', '.join(counts) or 'nothing wrong found'}"


def _counted(examination: Examination, severity: Severity) -> str:
    count = examination.count(severity)
    return f"{count} {_TITLES[severity][count != 1]}"


def shown_path(path: str) -> str:
    """`path`, from the working directory where it lies below it."""
    try:
        return str(Path(path).absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path


def _place(finding: Finding) -> str:
    """The place with its file from the working directory on."""
    if finding.file is None:
        return finding.place
    return finding.place.replace(finding.file, shown_path(finding.file), 1)


def _paragraph(finding: Finding) -> list[str]:
    lines = _wrapped(f"{_place(finding)}: {finding.what}  [{finding.id}]", "  ", "    ")
    lines += _wrapped(f"why: {finding.why}", "    ", "         ")
    return lines + _wrapped(f"fix: {finding.fix}", "    ", "         ")


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        one_line(text),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _machine(checks: tuple[Check, ...]) -> list[str]:
    width = max(len(check.id) for check in checks)
    return [f"  {_MARKS[check.state]:<2}  {check.id:<{width}}  {check.seen}" for check in checks]


def _trial(trial: Trial) -> Iterator[str]:
    around = f", around the model {trial.wrapped}" if trial.wrapped else ""
    yield f"Trial launch: {trial.strategy}, {trial.ranks} of {trial.world_size} ranks reported, {trial.backend}{around}"
    if trial.passed:
        yield from _wrapped(f"right on every rank: {', '.join(trial.passed)}", "  ", "    ")
    if trial.untried:
        yield from _wrapped(f"not tried: {', '.join(trial.untried)}", "  ", "    ")
    for speed in trial.speeds:
        yield f"  {_speed(speed)}"


def _speed(speed: TrialSpeed) -> str:
    size, taken = speed.bytes / 2**20, speed.seconds * 1000
    rate, link = speed.bytes_per_second / 1e9, speed.link_bytes_per_second / 1e9
    return f"{speed.collective:<14} {size:>4.0f} MiB {taken:>9.2f} ms {rate:>8.2f} GB/s {link:>8.2f} GB/s per link"


def render_json(examination: Examination) -> str:
    """One JSON document, without a final newline."""
    document = {
        "schema_version": 1,
        "script": examination.script,
        "plan": examination.plan,
        "counts": {severity: examination.count(severity) for severity in SEVERITIES},
        "findings": plain(examination.findings),
        "machine": None
        if examination.checks is None
        else [{"id": check.id, "state": check.state, "seen": check.seen} for check in examination.checks],
        "launch": None if examination.trial is None else _trial_document(examination.trial),
    }
    return json.dumps(document, indent=2)


def _trial_document(trial: Trial) -> dict[str, object]:
    whole = plain(trial)
    assert isinstance(whole, dict)  # a dataclass gives one
    return {key: value for key, value in whole.items() if key != "findings"}


def render_markdown(examination: Examination) -> str:
    """A table of findings, for a pull request. Ends with a newline."""
    lines = [f"**plan doctor**: {markdown(_summary(examination))}", ""]
    if examination.findings:
        lines += ["| | where | what | why | fix |", "|---|---|---|---|---|"]
        for finding in examination.findings:
            where = markdown_code(_place(finding), in_table=True)
            cells = (finding.severity, where, *(markdown(part) for part in (finding.what, finding.why, finding.fix)))
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    unknown = [check for check in examination.checks or () if check.state == "unknown"]
    if unknown:
        listed = "; ".join(f"{markdown(check.id)}: {markdown(check.seen)}" for check in unknown)
        lines += [f"Not known: {listed}", ""]
    if examination.trial is not None and examination.trial.speeds:
        lines += ["| collective | MiB | ms | GB/s per link |", "|---|---:|---:|---:|"]
        for speed in examination.trial.speeds:
            size, taken = speed.bytes >> 20, speed.seconds * 1000
            lines.append(f"| {speed.collective} | {size} | {taken:.2f} | {speed.link_bytes_per_second / 1e9:.2f} |")
        lines.append("")
    return "\n".join(lines)
