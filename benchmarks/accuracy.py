"""Estimates against every published measurement that can be scored.

    .venv/bin/python -m benchmarks.accuracy [--truth FILE] [--died FILE]

FILE is a JSON list of rows, or an object with `rows`; without it, benchmarks/data/published_memory.json is read, facts
copied from public sources, each named in its row. Writes benchmarks/results/accuracy.json and .md. Every row is scored
or set aside with the reason; nothing is fitted.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from benchmarks.accuracy_estimate import Estimator
from benchmarks.accuracy_lines import died_line_of, line_of
from benchmarks.accuracy_table import markdown, summary
from benchmarks.published_rows import Row
from gpu_plan.planner.errors import InputError, PlanError

HERE = Path(__file__).parent
_DATA = HERE / "data" / "published_memory.json"


def read_rows(path: Path, key: str) -> list[Row]:
    """Rows of a truth file; InputError when it is not one."""
    try:
        loaded = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise InputError(f"{path}: cannot be read as published measurements: {problem}") from None
    rows = loaded.get(key) if isinstance(loaded, dict) else loaded
    if not isinstance(rows, list) or not all(isinstance(row, dict) and {"id", "group"} <= set(row) for row in rows):
        raise InputError(f"{path}: holds no list of rows with `id` and `group`")
    return rows


def run(lived: list[Row], died: list[Row]) -> Row:
    """Every row: scored, or counted under the reason why it is not."""
    estimator = Estimator()
    found: Row = {"lived": [], "died": []}
    aside: Counter[str] = Counter()
    for key, rows, judge in (("lived", lived, line_of), ("died", died, died_line_of)):
        for row in rows:
            line = judge(estimator, row)
            if isinstance(line, str):
                aside[f"{row['group']}: {line}"] += 1
            else:
                found[key].append(line)
    return {"groups": summary(found["lived"], found["died"]), "set_aside": dict(aside), **found}


def main(arguments: list[str] | None = None) -> int:
    """Writes both result files."""
    parser = argparse.ArgumentParser(prog="benchmarks.accuracy")
    parser.add_argument("--truth", type=Path, help="runs that lived")
    parser.add_argument("--died", type=Path, help="runs that died; fit_oom.json beside FILE where it is there")
    given = parser.parse_args(arguments)
    truth = given.truth or _DATA
    beside = truth.parent / "fit_oom.json"
    died = given.died or (beside if given.truth and beside.exists() else None)
    try:
        lived_rows = read_rows(truth, "rows")
        died_rows = read_rows(died, "rows") if died else [] if given.truth else read_rows(truth, "died")
        found = run(lived_rows, died_rows)
    except PlanError as problem:
        print(problem, file=sys.stderr)
        return 2
    (HERE / "results" / "accuracy.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "results" / "accuracy.md").write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
