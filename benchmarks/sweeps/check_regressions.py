"""Seeded regressions and harmless changes of the example projects, each checked with `plan check`.

    .venv/bin/python -m benchmarks.sweeps.check_regressions [NAME...]

The projects and patches are those of tests/check. Each patch is applied to a fresh copy that holds the committed
baselines of the unpatched project; caught means a status of `warn` or `fail` with the culprit's file and line named. A
harmless change that is not `ok` is a false alarm. Seconds are wall time of the whole command. Then the
time of a 70B job, cold and unchanged. With names those alone are run again, the rest is kept.

Writes benchmarks/results/check_regressions.json and .md.
"""

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.places import RESULTS
from tests.check.seeds import Change, apply, changes, copy, missing, plan_check, report_of

RESULT = RESULTS / "check_regressions.json"
LARGE = """[tool.plan.checks.large]
model = "meta-llama/Llama-3.1-70B"
gpus = "8xH100"
strategy = "fsdp"
checkpointing = "full"
"""


def baseline(project: str, place: Path) -> Path:
    """A copy of the project with its baselines."""
    root = copy(project, place / "base" / project)
    done = plan_check(root, place / "cache", "--update", "--format", "json")
    assert done.returncode == 0, done.stderr + done.stdout
    return root


def check(change: Change, base: Path, place: Path) -> dict[str, Any]:
    """One patch."""
    root = copy(change.project, place / "changed" / change.project / change.name)
    for file in (base / ".plan").iterdir():
        (root / ".plan").mkdir(exist_ok=True)
        (root / ".plan" / file.name).write_bytes(file.read_bytes())
    apply(root, change.path.read_text(encoding="utf-8"))
    began = time.perf_counter()
    done = plan_check(root, place / "cache", "--format", "json", *change.jobs)
    seconds = time.perf_counter() - began
    report: dict[str, Any] = report_of(done)
    row: dict[str, Any] = {"change": str(change), "status": report["status"], "exit_code": done.returncode}
    row["seconds"] = round(seconds, 1)
    row["said"] = [
        f"{job['name']}: {place_of(finding)}{finding['message']}"
        for job in report["jobs"]
        for finding in job["findings"]
        if finding["level"] in ("error", "warning")
    ]
    if change.culprits:
        row["not_named"] = missing(change, root, report)
        row["right"] = not row["not_named"] and report["status"] in ("warn", "fail")
    else:
        row["right"] = report["status"] == "ok" and done.returncode == 0
    return row


def place_of(finding: dict[str, Any]) -> str:
    """`train.py:88: `, or nothing."""
    return f"{finding['file']}:{finding['line']}: " if finding["file"] else ""


def large(place: Path) -> dict[str, float]:
    """Wall and CPU seconds of a 70B job: cold, then with nothing changed. CPU seconds hardly depend on the load."""
    root = place / "large"
    root.mkdir()
    (root / "pyproject.toml").write_text(LARGE, encoding="utf-8")
    found = {}
    for name, words in (("baseline", ["--update"]), ("unchanged", []), ("cold", ["--no-cache"])):
        began, cpu = time.perf_counter(), children_seconds()
        done = plan_check(root, place / "cache", *words)
        assert done.returncode == 0, done.stderr
        found[f"{name}_seconds"] = round(time.perf_counter() - began, 2)
        found[f"{name}_cpu_seconds"] = round(children_seconds() - cpu, 2)
    return found


def children_seconds() -> float:
    """CPU time of all processes that have ended so far."""
    times = os.times()
    return times.children_user + times.children_system


def table(found: dict[str, Any]) -> str:
    """The results for people."""
    rows = found["changes"]
    regressions = [row for row in rows if "/regress-" in row["change"]]
    harmless = [row for row in rows if "/harmless-" in row["change"]]
    machine, timed = found["machine"], found["large"]
    present = {row["change"] for row in rows}
    absent = [str(change) for change in changes() if str(change) not in present]
    lines = [
        "# Seeded regressions and harmless changes",
        "",
        f"`python -m benchmarks.sweeps.check_regressions` on {machine['cpus']} CPUs, Python {machine['python']}, load"
        f" {machine['load']} at the start. Patches and projects: `tests/check`.",
        "",
        f"- regressions caught, culprit named: {sum(row['right'] for row in regressions)} of {len(regressions)}",
        f"- harmless changes without an alarm: {sum(row['right'] for row in harmless)} of {len(harmless)}",
        f"- a 70B job (Llama 3.1, FSDP2, 8 H100): {timed['cold_cpu_seconds']} CPU s cold ({timed['cold_seconds']} s of"
        f" wall time), {timed['unchanged_cpu_seconds']} CPU s when nothing changed ({timed['unchanged_seconds']} s)",
        *([f"- not run with this state of the program yet: {', '.join(absent)}"] if absent else []),
        "",
        "| regression | status | first finding | seconds |",
        "|---|---|---|---|",
    ]
    for row in regressions:
        first = row["said"][0].replace("|", "\\|") if row["said"] else "nothing"
        lines.append(
            f"| {row['change']} | {row['status']}{'' if row['right'] else ', missed'} | {first} | {row['seconds']} |"
        )
    lines += ["", "| harmless change | status | seconds |", "|---|---|---|"]
    for row in harmless:
        first = "" if row["right"] else ": " + "; ".join(row["said"])
        lines.append(f"| {row['change']} | {row['status']}{first} | {row['seconds']} |")
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Runs all, or those named."""
    kept = json.loads(RESULT.read_text()) if names and RESULT.is_file() else {"changes": [], "large": {}}
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[0], 1)}
    rows = {row["change"]: row for row in kept["changes"]}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        bases: dict[str, Path] = {}
        for change in changes():
            if names and str(change) not in names:
                continue
            if change.project not in bases:
                bases[change.project] = baseline(change.project, place)
            rows[str(change)] = row = check(change, bases[change.project], place)
            print(
                f"{'right' if row['right'] else 'WRONG':6} {row['seconds']:6} s  {change}", *row["said"][:1], flush=True
            )
            write({"machine": machine, "large": kept["large"], "changes": list(rows.values())})
        timed = large(place) if not names or "large" in names else kept["large"]
    found = write({"machine": machine, "large": timed, "changes": list(rows.values())})
    wrong = [row["change"] for row in found["changes"] if not row["right"]]
    print(f"{len(found['changes']) - len(wrong)} of {len(found['changes'])} right", *wrong)


def write(found: dict[str, Any]) -> dict[str, Any]:
    """Puts what is known so far where results stand."""
    found["changes"].sort(key=lambda row: str(row["change"]))
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if found["large"]:
        RESULT.with_suffix(".md").write_text(table(found), encoding="utf-8")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
