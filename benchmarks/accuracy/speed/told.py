"""What a program says of the rows of one truth file, or of one group of them."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.accuracy.row import Row
from benchmarks.accuracy.truth import read_truth
from gpu_plan.planner.errors import PlanError


def tell(name: str, arguments: list[str] | None, of_rows: Callable[[list[Row]], str], lacking: str) -> int:
    """Prints what is said of them; 2 and one line where FILE is no truth file, or where nothing is (`lacking`)."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.accuracy.speed.{name}", allow_abbrev=False)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--group", help="rows of this group alone")
    given = parser.parse_args(arguments)
    try:
        rows = [row for row in read_truth(given.file).rows if given.group in (None, row.get("group"))]
    except PlanError as problem:
        print(f"{name}: error: {problem}", file=sys.stderr)
        return 2
    text = of_rows(rows)
    if not text:
        print(f"{name}: error: {given.file}{lacking}", file=sys.stderr)
        return 2
    print(text)
    return 0
