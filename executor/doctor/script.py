"""Reads a script and applies every rule to it."""

from gpu_plan.executor.doctor.finding import SEVERITIES, Finding
from gpu_plan.executor.doctor.flow import read_flow
from gpu_plan.executor.doctor.intent import Intent
from gpu_plan.executor.doctor.rules import RULES
from gpu_plan.executor.script.read import Script


def examine_script(script: Script, intent: Intent | None = None) -> tuple[Finding, ...]:
    """What is wrong with `script` run as `intent` says, worst first, then by line. Nothing of it is executed."""
    wanted = intent or Intent()
    flow = read_flow(script)
    found: dict[tuple[str, int], Finding] = {}
    for rule in RULES.values():
        if rule.several_ranks and not wanted.several_ranks:
            continue
        for hit in rule.check(flow, wanted):
            cell, line = place_of(script, hit.line)
            finding = Finding(
                id=rule.id,
                severity=hit.severity or rule.severity,
                what=hit.what,
                why=hit.why or rule.why,
                fix=hit.fix or rule.fix,
                place=script.place(hit.line),
                file=str(script.path),
                line=line,
                cell=cell,
            )
            # One line may be reached on several ways: the gravest counts.
            before = found.get((rule.id, hit.line))
            if before is None or SEVERITIES.index(finding.severity) < SEVERITIES.index(before.severity):
                found[rule.id, hit.line] = finding
    order = sorted(found, key=lambda key: (SEVERITIES.index(found[key].severity), key[1], key[0]))
    return tuple(found[key] for key in order)


def place_of(script: Script, line: int) -> tuple[int | None, int]:
    """Cell (None in a script) and line within it of a line of the script's code."""
    starts = [start for start in script.cells if start <= line]
    return (len(starts), line - starts[-1] + 1) if starts else (None, line)
