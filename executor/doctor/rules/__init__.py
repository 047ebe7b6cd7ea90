"""The rules by which scripts are read; each family in its own file, all listed here.

    backward, devices, ranks, data, schedule, wrapping   the families, each with its `RULES`
    rule, common                                         what a rule is, questions that several ask

`doctor.script` applies `RULES`, by id. Rules read a `Flow` and never the text or the tree of a script.
"""

from gpu_plan.executor.doctor.rules import backward, data, devices, ranks, schedule, wrapping
from gpu_plan.executor.doctor.rules.rule import Rule

RULES: dict[str, Rule] = {
    rule.id: rule for family in (backward, devices, ranks, data, schedule, wrapping) for rule in family.RULES
}
