"""What the doctor finds: one problem, where it is, why it matters and what to do."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Worst first. `error`: the run stops, hangs or computes something wrong. `warning`: it does so under some strategies
or settings, or wastes much. `note`: worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of the script, the machine or a trial launch."""

    id: str
    severity: Severity
    what: str
    """One line: what is there."""
    why: str
    """What it leads to."""
    fix: str
    """What to write or do instead."""
    place: str
    """`train.py:12`, `a.ipynb cell 3 line 2`, or of the machine what was looked at (`/dev/shm`)."""
    file: str | None = None
    line: int | None = None
    """In `file`; of a notebook, in the cell."""
    cell: int | None = None
    """Of a notebook: number of the code cell, from 1."""


def worst(findings: tuple[Finding, ...]) -> Severity | None:
    """The gravest severity among `findings`; None where there are none."""
    found = {finding.severity for finding in findings}
    return next((severity for severity in SEVERITIES if severity in found), None)
