"""The committed results of `python -m benchmarks.accuracy`, and the rows that they are of."""

import json
from typing import Any

from benchmarks.accuracy.__main__ import DATA, HERE
from benchmarks.accuracy.truth import read_truth

COMMITTED: dict[str, Any] = json.loads((HERE / "results" / "accuracy.json").read_text())
LINES: dict[str, dict[str, Any]] = {line["id"]: line for line in COMMITTED["rows"]}
ROWS = {row["id"]: row for path in DATA for row in read_truth(path).rows}
PAGE = (HERE / "results" / "accuracy.md").read_text()


def lines_of(kind: str) -> list[dict[str, Any]]:
    """Scored rows of one kind."""
    return [line for line in COMMITTED["rows"] if line["kind"] == kind]
