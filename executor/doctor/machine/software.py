"""Installed packages against those that the plan needs and was made with."""

from gpu_plan.executor.doctor.finding import Finding
from gpu_plan.executor.doctor.machine.check import Check, fine, found, numbers, problem, unknown
from gpu_plan.executor.doctor.machine.facts import MachineFacts
from gpu_plan.executor.doctor.machine.need import Need

_OLDEST = {"torch": (2, 9), "transformers": (5, 0), "accelerate": (1, 10), "deepspeed": (0, 18), "peft": (0, 17)}
"""As this project's own requirements."""
_OWN = "gpu-plan"


def packages(facts: MachineFacts, need: Need) -> Check:
    """What cannot be missing, and what is too old."""
    if not facts.packages:
        return unknown("packages", "installed packages cannot be listed")
    findings = list[Finding]()
    for name in need.packages or ("torch", "accelerate"):
        version = facts.packages.get(name)
        if version is None:
            what = f"{name} is not installed"
            findings.append(
                problem("packages", "error", what, "the job ends at its import", f"pip install {name}", place=name)
            )
        elif name in _OLDEST and numbers(version) < _OLDEST[name]:
            wanted = ".".join(map(str, _OLDEST[name]))
            what = f"{name} {version} is older than {wanted}"
            why = "plans and launch files are made for that and later"
            findings.append(problem("packages", "warning", what, why, f"pip install '{name}>={wanted}'", place=name))
    if "transformer-engine" in facts.packages and "transformer-engine-torch" not in facts.packages:
        what = "transformer-engine is installed without its torch part"
        why = "an empty package of that name breaks peft's imports"
        findings.append(
            problem("packages", "warning", what, why, "pip uninstall transformer-engine", place="transformer-engine")
        )
    shown = ", ".join(f"{name} {facts.packages[name]}" for name in ("torch", "accelerate") if name in facts.packages)
    return found("packages", shown or "neither torch nor accelerate", *findings)


def versions(facts: MachineFacts, need: Need) -> Check:
    """A plan's figures hold for the versions that it was made with."""
    if not need.versions:
        return fine("plan-versions", "no plan to compare with")
    changed = []
    for name, then in need.versions.items():
        now = facts.packages.get(name)
        if name != _OWN and now is not None and now != then:
            changed.append(f"{name} {then} -> {now}")
    if changed:
        what = f"since the plan was made: {', '.join(changed)}"
        why = "memory may differ from what was computed"
        return found("plan-versions", what, problem("plan-versions", "warning", what, why, "make the plan again"))
    return fine("plan-versions", "as when the plan was made")
