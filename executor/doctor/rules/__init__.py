"""The rules by which scripts are read; each family in its own file, all listed here."""

from gpu_plan.executor.doctor.rules import backward, data, devices, ranks, schedule, wrapping
from gpu_plan.executor.doctor.rules.rule import Rule

RULES: dict[str, Rule] = {
    rule.id: rule for family in (backward, devices, ranks, data, schedule, wrapping) for rule in family.RULES
}
