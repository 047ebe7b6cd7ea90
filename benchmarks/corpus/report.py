"""The outcomes of `corpus.scripts` for people.

    .venv/bin/python -m benchmarks.corpus.report

Writes benchmarks/results/corpus_scripts.md.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.corpus.scripts import EXPECTED, RESULTS

ARGUED = Path(__file__).parent / "argued_scripts.json"
_SHOWN = 130


def as_markdown(expected: list[dict[str, Any]], results: dict[str, Any], argued: dict[str, str]) -> str:
    """Counts, then one line for each script that its text says to run; the others with why they do not."""
    runs = [row for row in expected if row["runs"]]
    lines = [
        "# The drawn scripts",
        "",
        f"{len(expected)} drawn, {len(runs)} of which run on the installed versions.",
        "",
    ]
    for label in ("before", "after"):
        counts = Counter(_outcome(row, results, label) for row in runs)
        lines.append(f"- {label}: " + ", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    lines += [
        "",
        "| script | before | after | processor seconds | with what, or what is wrong |",
        "|---|---|---|---:|---|",
    ]
    for row in runs:
        after = results.get(row["script"], {}).get("after", {})
        said = str(after.get("with") or after.get("wrong") or "")[:_SHOWN].replace("|", "/")
        why = argued.get(row["script"], "")
        outcomes = " | ".join(_outcome(row, results, label) for label in ("before", "after"))
        expected_refusal = f" (expected: {row['refused']})" if row.get("refused") else ""
        cells = "; ".join(filter(None, (said, why)))
        lines.append(f"| {row['script']} | {outcomes} | {after.get('seconds', '')} | {cells}{expected_refusal} |")
    lines += ["", "Drawn, and not run:", ""]
    lines += [f"- {row['script']}: {row['why']}" for row in expected if not row["runs"]]
    return "\n".join(lines) + "\n"


def _outcome(row: dict[str, Any], results: dict[str, Any], label: str) -> str:
    """In words; a script whose optimizer no plan knows must be refused for just that."""
    found = results.get(row["script"], {}).get(label, {})
    outcome = str(found.get("outcome", "not run"))
    as_it_must = bool(row.get("refused")) and "none that can be planned for" in str(found.get("with"))
    return "refused as it must be" if outcome == "refused" and as_it_must else outcome


def main() -> int:
    """Writes the page."""
    read = [json.loads(path.read_text()) for path in (EXPECTED, RESULTS, ARGUED)]
    RESULTS.with_suffix(".md").write_text(as_markdown(*read))
    return 0


if __name__ == "__main__":
    sys.exit(main())
