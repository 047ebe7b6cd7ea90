"""What became of each mutant: results/mutants.json, read and written, and mutants.md (I/O)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.mutants.mutant import Mutant

RESULTS = Path(__file__).parents[1] / "results"


def known() -> dict[str, Any]:
    """What an earlier run found, by the mutants' names; nothing where there was none."""
    path = RESULTS / "mutants.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"before": [], "mutants": {}}
    return found


def written(found: Mapping[str, Any], listed: Sequence[Mutant], seconds: float | None) -> str:
    """Both files; returns the line that sums up."""
    order = {mutant.name: found["mutants"][mutant.name] for mutant in listed if mutant.name in found["mutants"]}
    value = {**found, "mutants": order}
    if seconds is not None:
        value["seconds"] = round(seconds)
    (RESULTS / "mutants.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "mutants.md").write_text(page(value, listed))
    return summed_up(value, listed)


def summed_up(value: Mapping[str, Any], listed: Sequence[Mutant]) -> str:
    """One line: killed, argued equivalent, alive."""
    tried = [mutant for mutant in listed if mutant.name in value["mutants"]]
    killed = sum(bool(value["mutants"][mutant.name]["killed_by"]) for mutant in tried)
    equivalent = sum(bool(mutant.equivalent) for mutant in tried)
    alive = len(alive_of(value, tried))
    before = f"{len(value['before'])} of {value['tried_before']}" if "tried_before" in value else "none"
    return (
        f"{len(tried)} of {len(listed)} mutants tried: {killed} killed, {equivalent} argued equivalent, {alive} alive"
        f" (before the tests were improved {before} that were tried lived)"
    )


def alive_of(value: Mapping[str, Any], listed: Sequence[Mutant]) -> list[Mutant]:
    """Those that no test noticed, and that are not argued equivalent."""
    return [
        mutant
        for mutant in listed
        if mutant.name in value["mutants"] and not value["mutants"][mutant.name]["killed_by"] and not mutant.equivalent
    ]


def page(value: Mapping[str, Any], listed: Sequence[Mutant]) -> str:
    """As Markdown: what was alive, what is, what is argued, and what killed the rest."""
    lines = [
        "# Mutants",
        "",
        "Made by `python -m benchmarks.mutants` (`make mutants`) from the lists in `benchmarks/mutants/lists`:",
        "realistic faults, written before the tests were improved, each planted alone in a copy of the project. Only",
        "the fast tests that belong to the file are run.",
        "",
        f"{summed_up(value, listed)}.",
        "",
        "| topic | mutants | alive before | alive | argued equivalent |",
        "|---|---|---|---|---|",
    ]
    alive = {mutant.name for mutant in alive_of(value, listed)}
    for topic in dict.fromkeys(mutant.topic for mutant in listed):
        of = [mutant for mutant in listed if mutant.topic == topic]
        before = sum(mutant.name in value["before"] for mutant in of)
        counts = (before, sum(m.name in alive for m in of), sum(bool(m.equivalent) for m in of))
        lines.append(f"| {topic.replace('_', ' ')} | {len(of)} | " + " | ".join(map(str, counts)) + " |")
    lines += ["", "## Alive", "", *([f"- {name}" for name in sorted(alive)] or ["None."])]
    argued = [mutant for mutant in listed if mutant.equivalent]
    lines += ["", "## Argued equivalent", "", *([f"- {m.name}: {m.equivalent}" for m in argued] or ["None."])]
    lines += ["", "## Alive before the tests were improved", "", *(f"- {name}" for name in value["before"])]
    lines += ["", "## Killed", "", "| mutant | first test that failed |", "|---|---|"]
    for mutant in listed:
        by = value["mutants"].get(mutant.name, {}).get("killed_by")
        if by:
            lines.append(f"| {mutant.name} | `{by.replace('|', chr(92) + '|')}` |")
    return "\n".join(lines) + "\n"
