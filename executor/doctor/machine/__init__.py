"""Whether a machine can bear a job: small checks, each a pure function of what was seen and of what the plan needs.

    facts, need                                what was seen, None where it could not be; what a plan asks for
    gpus, system, storage, network, software   the checks
    check                                      what one check gives

Others use the names below. A new check is a function here and a line in `CHECKS`. No I/O: `doctor.facts` looks.
"""

from gpu_plan.executor.doctor.finding import SEVERITIES, Finding
from gpu_plan.executor.doctor.machine import gpus, network, software, storage, system
from gpu_plan.executor.doctor.machine.check import Check, Checker
from gpu_plan.executor.doctor.machine.facts import FolderFacts, GpuFacts, MachineFacts
from gpu_plan.executor.doctor.machine.need import Need, need_of

__all__ = [
    "CHECKS",
    "Check",
    "FolderFacts",
    "GpuFacts",
    "MachineFacts",
    "Need",
    "examine_machine",
    "findings_of",
    "need_of",
]

CHECKS: tuple[Checker, ...] = (
    gpus.gpus_present,
    gpus.gpus_equal,
    gpus.driver,
    gpus.gpus_free,
    gpus.nccl,
    system.kernel,
    system.ram,
    system.shared_memory,
    system.limits,
    system.cores,
    system.clock,
    storage.checkpoints,
    storage.offload,
    storage.cache,
    network.ports,
    network.host_name,
    network.interfaces,
    network.leftovers,
    software.packages,
    software.versions,
)


def examine_machine(facts: MachineFacts, need: Need | None = None) -> tuple[Check, ...]:
    """Every check, in the order of the list."""
    return tuple(check(facts, need or Need()) for check in CHECKS)


def findings_of(checks: tuple[Check, ...]) -> tuple[Finding, ...]:
    """What the checks found, worst first."""
    found = [finding for check in checks for finding in check.findings]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))
