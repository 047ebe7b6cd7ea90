"""What a rule is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_plan.executor.doctor.finding import Severity
from gpu_plan.executor.doctor.flow import Flow
from gpu_plan.executor.doctor.intent import Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place where a rule is broken."""

    line: int
    what: str
    severity: Severity | None = None
    """Where it differs from the rule's own."""
    why: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that a script must not do."""

    id: str
    severity: Severity
    why: str
    fix: str
    check: Callable[[Flow, Intent], Iterator[Hit]]
    several_ranks: bool = True
    """Whether it matters only where more than one rank runs."""
