"""The doctor over example scripts that libraries ship, and over seeded bugs: findings, and which are argued.

    .venv/bin/python -m benchmarks.sweeps.doctor_scripts FOLDER...

Each FOLDER is one library's examples, a checkout of huggingface/accelerate/examples for instance; they are not part
of this repository. Such scripts are taken for good: every finding is either argued in
benchmarks/data/doctor_argued.json (by rule, and where that says so by path) or counted as a false alarm. Arguments
by rule were written after looking at the findings, of the two largest rules at a sample; the results list all.
Without FOLDER only the seeded bugs of tests/support/seeds are counted; the earlier figures are kept.

Writes benchmarks/results/doctor_scripts.json and .md.
"""

import ast
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.places import DATA, RESULTS
from gpu_plan.executor.doctor.finding import Finding
from gpu_plan.executor.doctor.rules import RULES
from gpu_plan.executor.doctor.script import examine_script
from gpu_plan.executor.script.read import Script, read_script
from gpu_plan.planner.errors import PlanError
from tests.support.seeds import HARMLESS, SCRIPTS, SEEDS

ARGUED = DATA / "doctor_argued.json"
RESULTS = RESULTS / "doctor_scripts.json"


def argument_of(finding: Finding, argued: list[dict[str, str]]) -> str | None:
    """Why a finding in a script that is taken for good is right; None for a false alarm."""
    for entry in argued:
        if entry["rule"] == finding.id and entry["path"] in (finding.file or ""):
            return entry["argument"]
    return None


def of_folder(folder: Path, argued: list[dict[str, str]]) -> dict[str, Any]:
    """Figures of one library's scripts and notebooks, every finding listed."""
    findings: list[dict[str, object]] = []
    unreadable: list[str] = []
    scripts = with_findings = 0
    began = time.perf_counter()
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.ipynb")]):
        scripts += 1
        try:
            found = examine_script(read_script(path))
        except PlanError as problem:
            unreadable.append(str(problem).replace(f"{folder}/", ""))
            continue
        with_findings += bool(found)
        for finding in found:
            findings.append(
                {
                    "rule": finding.id,
                    "severity": finding.severity,
                    "place": finding.place.replace(f"{folder}/", ""),
                    "what": finding.what,
                    "argued": argument_of(finding, argued) is not None,
                }
            )
    return {
        "scripts": scripts,
        "unreadable": unreadable,
        "with_findings": with_findings,
        "seconds": round(time.perf_counter() - began, 1),
        "findings": findings,
    }


def _examined(source: str, name: str) -> tuple[Finding, ...]:
    return examine_script(Script(path=SCRIPTS / f"{name}.py", source=source, tree=ast.parse(source)))


def of_seeds() -> dict[str, Any]:
    """Seeded bugs found by their rule on their line; findings in good scripts and after harmless changes."""
    missed = []
    for seed in SEEDS:
        source = seed.source()
        lines = source.splitlines()
        hits = [
            lines[(found.line or 1) - 1].strip() for found in _examined(source, seed.script) if found.id == seed.rule
        ]
        if seed.at not in hits:
            missed.append(f"{seed.rule} in {seed.script}")
    good = {path.stem: path.read_text() for path in sorted(SCRIPTS.glob("*.py"))}
    alarms = [f"{found.id} in {name}" for name, source in good.items() for found in _examined(source, name)]
    for seed in HARMLESS:
        alarms += [f"{found.id} in {seed.script}: {seed.at}" for found in _examined(seed.source(), seed.script)]
    return {
        "rules": len(RULES),
        "seeded": len(SEEDS),
        "caught": len(SEEDS) - len(missed),
        "missed": missed,
        "good": len(good) + len(HARMLESS),
        "false_alarms": alarms,
    }


def as_markdown(result: dict[str, Any], argued: list[dict[str, str]]) -> str:
    """The tables for people."""
    seeds = result["seeds"]
    lines = [
        "# plan doctor on scripts",
        "",
        f"{seeds['caught']} of {seeds['seeded']} seeded bugs found on their line ({seeds['rules']} rules); "
        f"{len(seeds['false_alarms'])} false alarms in {seeds['good']} good scripts of our own.",
        "",
        "| examples of | scripts | unreadable | with findings | errors | warnings | notes | not argued | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    totals: Counter[str] = Counter()
    for name, figures in sorted(result["libraries"].items()):
        severities = Counter(finding["severity"] for finding in figures["findings"])
        alarms = sum(not finding["argued"] for finding in figures["findings"])
        totals.update(finding["rule"] for finding in figures["findings"])
        cells = (
            figures["scripts"], len(figures["unreadable"]), figures["with_findings"], severities["error"],
            severities["warning"], severities["note"], alarms, figures["seconds"],
        )  # fmt: skip
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    lines += ["", "| rule | findings | argument |", "|---|---:|---|"]
    for rule, count in totals.most_common():
        why = "; ".join(entry["argument"] for entry in argued if entry["rule"] == rule)
        lines.append(f"| {rule} | {count} | {why} |")
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Runs over the folders named, writes the results, gives 1 where a false alarm or a miss is among them."""
    argued = json.loads(ARGUED.read_text())
    libraries: dict[str, Any] = {}
    if not words and RESULTS.exists():
        libraries = json.loads(RESULTS.read_text())["libraries"]
    for word in words:
        folder = Path(word).resolve()
        libraries[folder.name.replace("+", "/")] = of_folder(folder, argued)
    result = {"seeds": of_seeds(), "libraries": libraries}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    RESULTS.with_suffix(".md").write_text(as_markdown(result, argued))
    alarms = [finding for figures in libraries.values() for finding in figures["findings"] if not finding["argued"]]
    print(f"{result['seeds']['caught']} of {result['seeds']['seeded']} seeded bugs caught; {len(alarms)} not argued")
    for finding in alarms:
        print(f"  {finding['severity']} {finding['rule']} {finding['place']}: {finding['what']}")
    return 1 if alarms or result["seeds"]["missed"] or result["seeds"]["false_alarms"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
