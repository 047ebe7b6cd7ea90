"""What one look at a machine gives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpu_plan.executor.doctor.finding import Finding, Severity
from gpu_plan.executor.doctor.machine.facts import MachineFacts
from gpu_plan.executor.doctor.machine.need import Need

State = Literal["ok", "unknown", "found"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    id: str
    state: State
    seen: str
    """What is there; of an unknown, why it cannot be known."""
    findings: tuple[Finding, ...] = ()


Checker = Callable[[MachineFacts, Need], Check]


def fine(id: str, seen: str) -> Check:
    return Check(id=id, state="ok", seen=seen)


def unknown(id: str, why: str) -> Check:
    return Check(id=id, state="unknown", seen=why)


def problem(id: str, severity: Severity, what: str, why: str, fix: str, *, place: str = "this machine") -> Finding:
    return Finding(id=id, severity=severity, what=what, why=why, fix=fix, place=place)


def found(id: str, seen: str, *findings: Finding) -> Check:
    """A check with its findings; fine where there are none."""
    return Check(id=id, state="found" if findings else "ok", seen=seen, findings=findings)


def either(severe: bool, then: Severity, otherwise: Severity) -> Severity:
    """`then` where it is severe, else `otherwise`."""
    return then if severe else otherwise


def numbers(version: str) -> tuple[int, ...]:
    """`(5, 4, 0)` of `5.4.0-150-generic`; empty for what has no number."""
    parts: list[int] = []
    for piece in version.replace("-", ".").replace("+", ".").split("."):
        if not (piece.isascii() and piece.isdigit()):
            break
        parts.append(int(piece))
    return tuple(parts)
