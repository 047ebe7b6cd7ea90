"""The outcomes of `corpus.scripts` for people.

    .venv/bin/python -m benchmarks.corpus.report

Writes benchmarks/results/corpus_scripts.md, and corpus_held_scripts.md, corpus_third_scripts.md and
so on of the later draws, and corpus_all_scripts.md of all with one day's code.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.corpus.scripts import (
    EIGHTH,
    EIGHTH_RESULTS,
    EXPECTED,
    FIFTH,
    FIFTH_RESULTS,
    FOURTH,
    FOURTH_RESULTS,
    HELD,
    HELD_RESULTS,
    NINTH,
    NINTH_RESULTS,
    RESULTS,
    SEVENTH,
    SEVENTH_RESULTS,
    SIXTH,
    SIXTH_RESULTS,
    THIRD,
    THIRD_RESULTS,
)

ARGUED = Path(__file__).parent / "argued_scripts.json"
THIRD_ARGUED = Path(__file__).parent / "argued_third_scripts.json"
FOURTH_ARGUED = Path(__file__).parent / "argued_fourth_scripts.json"
FIFTH_ARGUED = Path(__file__).parent / "argued_fifth_scripts.json"
SIXTH_ARGUED = Path(__file__).parent / "argued_sixth_scripts.json"
EIGHTH_ARGUED = Path(__file__).parent / "argued_eighth_scripts.json"
NINTH_ARGUED = Path(__file__).parent / "argued_ninth_scripts.json"
SEVENTH_ARGUED = Path(__file__).parent / "argued_seventh_scripts.json"
NOW_ARGUED = Path(__file__).parent / "argued_now.json"
"""What is not right under the label `now` (of the seventh and the eighth draw `after`), by its kind and with why."""
HELD_ARGUED = Path(__file__).parent / "argued_held_scripts.json"
_REFUSED_AS_EXPECTED: set[tuple[str, str]] = set()
"""Scripts of the second draw whose line says what their text told, by label: argued_held_scripts.json, `refused as
expected`; `at last` where the first run's line did not."""
_SHOWN = 130


def as_markdown(
    expected: list[dict[str, Any]],
    results: dict[str, Any],
    argued: dict[str, str],
    labels: tuple[str, str] = ("before", "after"),
    title: str = "The drawn scripts",
) -> str:
    """Counts, then one line for each script that its text says to run; the others with why they do not."""
    runs = [row for row in expected if row["runs"]]
    lines = [
        f"# {title}",
        "",
        f"{len(expected)} drawn, {len(runs)} of which run on the installed versions.",
        "",
    ]
    for label in labels:
        counts = Counter(_outcome(row, results, label) for row in runs)
        lines.append(f"- {label}: " + ", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    lines += [
        "",
        f"| script | {labels[0]} | {labels[1]} | seconds | MiB | with what, or what is wrong |",
        "|---|---|---|---:|---:|---|",
    ]
    for row in runs:
        found = results.get(row["script"], {})
        after = found.get(labels[1]) or found.get(labels[0], {})
        said = str(after.get("with") or after.get("wrong") or "")[:_SHOWN].replace("|", "/")
        why = argued.get(row["script"], "")
        outcomes = " | ".join(_outcome(row, results, label) for label in labels)
        expected_refusal = f" (expected: {row['refused']})" if row.get("refused") else ""
        cells = "; ".join(filter(None, (said, why)))
        used = f"{after.get('seconds', '')} | {after.get('mib', '')}"
        lines.append(f"| {row['script']} | {outcomes} | {used} | {cells}{expected_refusal} |")
    lines += ["", "Drawn, and not run:", ""]
    lines += [f"- {row['script']}: {row['why']}" for row in expected if not row["runs"]]
    return "\n".join(lines) + "\n"


def _outcome(row: dict[str, Any], results: dict[str, Any], label: str) -> str:
    """In words; a script whose optimizer no plan knows must be refused for just that."""
    found = results.get(row["script"], {}).get(label, {})
    outcome = str(found.get("outcome", "not run"))
    # Of the second draw the text tells why it must be refused; whether the line says that is read, not matched.
    as_it_must = bool(row.get("refused")) and (
        "none that can be planned for" in str(found.get("with")) or (row["script"], label) in _REFUSED_AS_EXPECTED
    )
    return "refused as it must be" if outcome == "refused" and as_it_must else outcome


def _second_page(paths: tuple[Path, Path, Path], title: str) -> None:
    """Of a draw whose first run was without any mend."""
    expected, results, argued = (json.loads(path.read_text()) for path in paths)
    for name, why in argued.items():
        if why.startswith("refused as expected"):
            _REFUSED_AS_EXPECTED.update((name, label) for label in ("first", "after")[why.count("at last") :])
    page = as_markdown(expected, results, argued, ("first", "after"), title)
    paths[1].with_suffix(".md").write_text(page)


_DRAWS = (
    ("first", EXPECTED, RESULTS, "now"),
    ("second", HELD, HELD_RESULTS, "now"),
    ("third", THIRD, THIRD_RESULTS, "now"),
    ("fourth", FOURTH, FOURTH_RESULTS, "now"),
    ("fifth", FIFTH, FIFTH_RESULTS, "now"),
    ("sixth", SIXTH, SIXTH_RESULTS, "now"),
    ("seventh", SEVENTH, SEVENTH_RESULTS, "after"),
    ("eighth", EIGHTH, EIGHTH_RESULTS, "after"),
    ("ninth", NINTH, NINTH_RESULTS, "after"),
)
_STATE = "one state"
"""Label of what was measured on one state of the code."""
_LAST = "last state"
"""Label of what of the others was measured on a later one."""
_NOON = "noon"
"""Label of what of the rest was measured on two later ones still."""
_KINDS = ("right", "misread", "wrong", "limit", "must be refused", "does not run", "not measured")


def _now(script: str, found: dict[str, Any], label: str, argued: dict[str, list[str]]) -> str:
    """The kind of the latest outcome; right where it is right, else as it is argued."""
    labels = (_NOON, _LAST, _STATE, label, *(["first"] if label == "after" else []))
    outcome = next((found[one].get("outcome") for one in labels if one in found), None)
    if outcome is None:
        return "not measured"
    return "right" if outcome == "right" else argued.get(script, ["limit" if outcome == "refused" else "wrong"])[0]


def _without(found: dict[str, Any], label: str) -> dict[str, Any]:
    return {name: outcome for name, outcome in found.items() if name != label}


def _all() -> str:
    """Every draw: what can be captured, and what is; how much of it on one state of the code."""
    argued = json.loads(NOW_ARGUED.read_text())
    whole: Counter[str] = Counter()
    here: Counter[str] = Counter()
    since: Counter[str] = Counter()
    noon: Counter[str] = Counter()
    rows, told = [], []
    for name, expected, results, label in _DRAWS:
        kept = json.loads(results.read_text()) if results.exists() else {}
        scripts = [row["script"] for row in json.loads(expected.read_text()) if row["runs"]]
        kinds = {script: _now(script, kept.get(script, {}), label, argued) for script in scripts}
        whole += Counter(kinds.values())
        first = {script: _now(script, _without(kept.get(script, {}), _NOON), label, argued) for script in scripts}
        here += Counter(first[script] for script in scripts if _STATE in kept.get(script, {}))
        since += Counter(kinds[script] for script in scripts if _LAST in kept.get(script, {}))
        noon += Counter(
            kinds[script]
            for script in scripts
            if _NOON in kept.get(script, {}) and not {_STATE, _LAST} & kept[script].keys()
        )
        rows.append(_line(name, Counter(kinds.values())))
        told += [f"- {kinds[script]}: {script}: {argued.get(script, ['', ''])[1]}" for script in scripts
                 if kinds[script] not in ("right", "not measured")]  # fmt: skip
    lines = [
        "# All draws of scripts",
        "",
        f"{here.total()} of {whole.total()} scripts were measured on one state of the code (a8cb0a90,"
        f" 2026-11-27), {since.total()} of the others on a later one (ae1bb7d4, 2026-11-28) and {noon.total()} on two"
        " later ones still (03fb8b47 and 91453fed, 2026-11-28, noon): the last lines of the table.",
        "",
        f"| draw | {' | '.join(_KINDS)} | captured |",
        f"|---|{'---:|' * (len(_KINDS) + 1)}",
        *rows,
        _line("all", whole),
        _line("of them, one state", here),
        _line("of them, a later one", since),
        _line("of them, two later ones still", noon),
        "",
        "Captured: right, and right but for an expectation that was misread from the text, of what can be captured:"
        " of all that runs here, less what must be refused, what does not run after all, and what was not measured.",
        "",
        *sorted(told),
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, counts: Counter[str]) -> str:
    able = sum(counts[kind] for kind in ("right", "misread", "wrong", "limit"))
    share = f"{counts['right'] + counts['misread']} of {able}"
    if able:
        share += f" ({100 * (counts['right'] + counts['misread']) / able:.0f} %)"
    return f"| {name} | {' | '.join(str(counts[kind]) for kind in _KINDS)} | {share} |"


def main() -> int:
    """Writes the page."""
    read = [json.loads(path.read_text()) for path in (EXPECTED, RESULTS, ARGUED)]
    RESULTS.with_suffix(".md").write_text(as_markdown(*read))
    _second_page((HELD, HELD_RESULTS, HELD_ARGUED), "The second draw")
    _second_page((THIRD, THIRD_RESULTS, THIRD_ARGUED), "The third draw")
    _second_page((FOURTH, FOURTH_RESULTS, FOURTH_ARGUED), "The fourth draw")
    _second_page((FIFTH, FIFTH_RESULTS, FIFTH_ARGUED), "The fifth draw")
    _second_page((SIXTH, SIXTH_RESULTS, SIXTH_ARGUED), "The sixth draw")
    _second_page((SEVENTH, SEVENTH_RESULTS, SEVENTH_ARGUED), "The seventh draw")
    _second_page((EIGHTH, EIGHTH_RESULTS, EIGHTH_ARGUED), "The eighth draw")
    _second_page((NINTH, NINTH_RESULTS, NINTH_ARGUED), "The ninth draw")
    (RESULTS.parent / "corpus_all_scripts.md").write_text(_all())
    return 0


if __name__ == "__main__":
    sys.exit(main())
