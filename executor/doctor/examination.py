"""All that one run of the doctor found."""

from dataclasses import dataclass, field

from gpu_plan.executor.doctor.finding import SEVERITIES, Finding, Severity
from gpu_plan.executor.doctor.machine import Check, findings_of
from gpu_plan.executor.doctor.trial.judge import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was looked at, and what was found. None: not looked at."""

    script: str | None = None
    script_findings: tuple[Finding, ...] = ()
    plan: str | None = None
    """What the job was taken to be, in words; None where every way was thought of."""
    checks: tuple[Check, ...] | None = None
    trial: Trial | None = None
    where: str = "this machine"
    """What the checks are of: this machine, or an engine's nodes."""
    findings: tuple[Finding, ...] = field(init=False)
    """Everything, worst first: of the script, the machine, the trial launch."""

    def __post_init__(self) -> None:
        every = [*self.script_findings, *findings_of(self.checks or ()), *(self.trial.findings if self.trial else ())]
        ordered = sorted(every, key=lambda finding: SEVERITIES.index(finding.severity))
        object.__setattr__(self, "findings", tuple(ordered))

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)
