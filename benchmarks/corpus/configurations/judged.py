"""`plan from-config` on each drawn configuration, against what was expected of it.

    .venv/bin/python -m benchmarks.corpus.configurations.judged FOLDER [--stage before|after|again|held again|...]

Each file is read on eight H100s, or on as many as it says itself. It ends

- right: read with every expected option and every expected word said, or refused where it must be;
- wrong: read as what it is, with another value, or with a difference that is not said;
- guessed: read although it must be refused, or read as another kind;
- refused: not read although it can be.

Writes benchmarks/results/configurations.json, a stage beside the other, and configurations.md.
"""

import contextlib
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpu_plan.cli import main as plan

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results"
ENDS = ("right", "wrong", "guessed", "refused")
AGAIN = "again"
"""What the stages end in that judge every draw on one state of the code: their flaws are listed."""
Expected = Mapping[str, Any]


def run(path: Path, expected: Expected) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    known = "processes" in expected.get("options", {})
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = plan(["from-config", str(path), "--json", "--gpus", "H100" if known else "8xH100"])
    return code, out.getvalue(), err.getvalue()


def judged(path: Path, expected: Expected) -> tuple[str, str]:
    """How a file ended, and why."""
    code, out, err = run(path, expected)
    error = err.strip().splitlines()[-1].replace(str(path), path.name) if err.strip() else ""
    if code not in (0, 2, 3) or "Traceback" in err:
        return "wrong", f"exit code {code}: {error}"
    if expected["ends"] == "refused":
        return ("guessed", f"read as {json.loads(out)['kind']}") if code == 0 else ("right", error)
    if code != 0:
        return "refused", error
    found = json.loads(out)
    if found["kind"] != expected["kind"]:
        return "guessed", f"read as {found['kind']}"
    if found["kind"] == "job":  # several models, as a document of `plan JOB.toml`: its values are not compared here
        return "right", ""
    flaws = list(_differences(found, expected["options"]))
    lines = [*found["approximated"], *found["notes"]]
    flaws += [f"{word} is not said" for word in expected["said"] if not any(word in line for line in lines)]
    return ("wrong", "; ".join(flaws)) if flaws else ("right", "")


def _differences(found: Mapping[str, Any], options: Mapping[str, Any]) -> Iterable[str]:
    given = {**found["options"], **found["settings"], "model": found["model"], "processes": found["processes"]}
    for name, wanted in options.items():
        value = given.get(name)
        if (None if value is None else str(value)) != (None if wanted is None else str(wanted)):
            yield f"{name} is {value}, not {wanted}"


def table(stages: Mapping[str, list[dict[str, str]]]) -> str:
    """Both stages by family of repositories, and each flaw of the last one."""
    lines = ["# Configurations that people have", ""]
    for stage, rows in stages.items():
        count = Counter(row["end"] for row in rows)
        shares = ", ".join(f"{count[end]} {end}" for end in ENDS)
        lines += [f"{stage.capitalize()}: of {len(rows)} files of {len({row['repository'] for row in rows})}"]
        lines[-1] += f" repositories {shares} ({100 * count['right'] / len(rows):.1f} % right)."
        readable = [row for row in rows if row["expected"] == "read"]
        count = Counter(row["end"] for row in readable)
        lines += ["", f"- of {len(readable)} that must be read: {', '.join(f'{count[end]} {end}' for end in ENDS)}"]
        rest = Counter(row["end"] for row in rows if row["expected"] != "read")
        lines += [
            f"- of {sum(rest.values())} that must be refused: {rest['right']} refused, {rest['guessed']} guessed",
            "",
        ]
    lines += ["| repository | " + " | ".join(f"right {stage}" for stage in stages) + " |"]
    lines += ["|---|" + "---|" * len(stages)]
    last = list(stages.values())[-1]
    everywhere = [rows for stage, rows in stages.items() if stage.endswith(AGAIN)] or [last]
    corrected = [row for rows in everywhere for row in rows if row["corrected"]]
    if corrected:
        lines[-2:-2] = [f"Expectations corrected after a first run, with the tool's source: {len(corrected)}.", ""]
    for name in sorted({row["repository"] for rows in stages.values() for row in rows}):
        of = [[row["end"] == "right" for row in rows if row["repository"] == name] for rows in stages.values()]
        shown = [f"{sum(ends)} of {len(ends)}" if ends else "" for ends in of]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    flaws = [row for rows in everywhere for row in rows if row["end"] != "right"]
    if flaws:
        lines += ["", "## What is not right", "", "| file | end | why |", "|---|---|---|"]
        lines += [f"| {row['repository']}/{row['path']} | {row['end']} | {_cell(row['why'])} |" for row in flaws]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:300]


def main(words: list[str]) -> int:
    """Judges all; 1 where a file is missing."""
    folder, stage = Path(words[0]), words[2] if "--stage" in words else "after"
    rows, missing = [], []
    # The later draws' expectations are beside those of the first.
    listed = HERE / next(
        (f"{name}.json" for name in ("held", "third", "fourth", "fifth", "sixth", "seventh") if stage.startswith(name)),
        "expected.json",
    )
    for expected in json.loads(listed.read_text()):
        path = folder / expected["repository"] / expected["path"]
        if not path.is_file():
            missing.append(str(path))
            continue
        end, why = judged(path, expected)
        row = {"repository": expected["repository"], "path": expected["path"], "expected": expected["ends"]}
        row["corrected"] = expected.get("corrected", "")
        rows.append({**row, "end": end, "why": why})
    for name in missing:
        print(f"missing: {name}")
    out = RESULTS / "configurations.json"
    stages = json.loads(out.read_text()) if out.is_file() else {}
    stages = {**stages, stage: rows}
    out.write_text(json.dumps(stages, indent=1) + "\n")
    (RESULTS / "configurations.md").write_text(table(stages))
    print(Counter(row["end"] for row in rows))
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
