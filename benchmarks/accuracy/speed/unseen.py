"""Rows of a truth file that nothing here was looked at with, drawn by a seed that stands here.

    .venv/bin/python -m benchmarks.accuracy.speed.unseen FILE [--group NAME] [--rows N] > drawn.json
    .venv/bin/python -m benchmarks.accuracy.speed --truth drawn.json

A row counts as seen where benchmarks/data holds it. Exit code 2 where FILE is no truth file or holds no such row.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.accuracy.row import Row
from benchmarks.accuracy.truth import Kind, read_truth
from gpu_plan.planner.errors import PlanError

SEED = 20261127
_SEEN = tuple(Path(__file__).parents[2] / "data" / f"published_{name}.json" for name in ("speed", "degrees"))


def drawn(rows: Iterable[Row], seen: Iterable[object], count: int, seed: int = SEED) -> list[Row]:
    """At most `count` rows whose id is not among `seen`, in the seed's order: the first of it are a sample too."""
    known = set(seen)
    left = sorted((row for row in rows if row.get("id") not in known), key=lambda row: str(row.get("id")))
    random.Random(seed).shuffle(left)
    return left[:count]


def main(arguments: list[str] | None = None) -> int:
    """Prints the rows as a JSON list."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.speed.unseen", allow_abbrev=False)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--group", help="rows of this group alone")
    parser.add_argument("--rows", type=int, default=100, metavar="N")
    given = parser.parse_args(arguments)
    try:
        seen = [row.get("id") for path in _SEEN for row in read_truth(path, Kind.SPEED).rows]
        rows = [row for row in read_truth(given.file).rows if given.group in (None, row.get("group"))]
    except PlanError as problem:
        print(f"unseen: error: {problem}", file=sys.stderr)
        return 2
    found = drawn(rows, seen, given.rows)
    if not found:
        print(f"unseen: error: {given.file} has no row that is not among the committed ones", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
