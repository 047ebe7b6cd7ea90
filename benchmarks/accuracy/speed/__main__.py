"""Predicted step times against published ones, in every cut.

    .venv/bin/python -m benchmarks.accuracy.speed [--truth FILE]... [--json] [--rows FILE] [--scored FILE] [--sources]
                                                  [--keep FILE]

FILE is a JSON list of rows about speed. Without --truth the committed rows of benchmarks/data are read and
benchmarks/results/seconds.json and .md written. --rows writes every scored row; --scored reads such a file again
instead of estimating anew. --sources has every row told without each source of the speed model's tables as well, and
benchmarks/results/seconds_sources.md written. A run with --keep that was stopped goes on where it stopped.
Exit code 2 where a file is no truth file or holds no row about speed.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.accuracy.__main__ import scored_rows
from benchmarks.accuracy.kept import Kept, state_of_code
from benchmarks.accuracy.speed import sources
from benchmarks.accuracy.speed.figures import (
    CUTS,
    between_strategies,
    cut,
    figures,
    orders,
    over_devices,
    ratios,
    sources_left_out,
)
from benchmarks.accuracy.truth import Kind, read_truth
from gpu_plan.planner.errors import InputError, PlanError

_HERE = Path(__file__).parents[2]
_COMMITTED = (_HERE / "data" / "published_speed.json", _HERE / "data" / "published_degrees.json")
_HEAD = """# Step times against published ones

Written by `python -m benchmarks.accuracy.speed`. Errors are of predicted / measured − 1; *bias* is the median ratio
− 1; *half-width* that of the interval over the predicted time (median). Nothing is fitted to a row.
"""


def main(arguments: list[str] | None = None) -> int:
    """Prints the figures; writes the committed results where no file was given."""
    given = _parser().parse_args(arguments)
    try:
        lines, aside = _read(given.scored) if given.scored else _estimate(given)
    except PlanError as problem:
        print(f"accuracy: error: {problem}", file=sys.stderr)
        return 2
    found = document(lines, aside)
    text = page(found)
    if given.rows is not None:
        given.rows.write_text(json.dumps({"rows": lines, "set_aside": aside}, indent=1) + "\n")
    if not given.truth and not given.scored:
        (_HERE / "results" / "seconds.json").write_text(json.dumps(found, indent=1) + "\n")
        (_HERE / "results" / "seconds.md").write_text(text)
        if given.sources:
            (_HERE / "results" / "seconds_sources.md").write_text(sources.page(lines))
    print(json.dumps(found, indent=1) if given.json else text)
    return 0


def _estimate(given: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    paths = given.truth or _COMMITTED
    kept = None if given.keep is None else Kept(given.keep, f"{state_of_code()} {given.sources}")
    found = scored_rows([read_truth(path, Kind.SPEED) for path in paths], None, kept, without=given.sources)
    if not found.lines:
        raise InputError(f"{paths[0]}: no row about speed that can be scored")
    return list(found.lines), [row.reason for row in found.aside]


def _read(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    try:
        kept = json.loads(path.read_text())
        lines = [line for line in kept["rows"] if line["kind"] == "speed" and "tokens" in line]
        aside = [row if isinstance(row, str) else row["reason"] for row in kept["set_aside"]]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path}: no file that --rows has written ({type(problem).__name__})") from problem
    if not lines:
        raise InputError(f"{path}: no scored row about speed")
    return lines, aside


def document(lines: Sequence[Mapping[str, Any]], aside: Sequence[str]) -> dict[str, Any]:
    """What --json prints."""
    return {
        "all": figures(lines),
        **{f"by {name}": cut(lines, by) for name, by in CUTS.items()},
        "sources left out": sources_left_out(lines),
        "orders": orders(lines),
        "ratios": ratios(lines),
        "between strategies": between_strategies(lines),
        "over devices": over_devices(lines),
        "farthest": farthest(lines),
        "set aside": dict(Counter(aside).most_common()),
    }


def farthest(lines: Sequence[Mapping[str, Any]], count: int = 40) -> dict[str, dict[str, Any]]:
    """The rows whose times are farthest from what was measured, by their factor."""
    order = sorted(lines, key=lambda line: -abs(math.log(line["ratio"])))[:count]
    return {
        f"{line['id']} {line['gpus']} {line['degrees'] or line['strategy']}, {line['micro_batch']} samples": {
            "measured": f"{line['measured']:.2f} s",
            "over": f"{line['ratio']:.2f}",
            "inside": "yes" if line["inside"] else "no",
        }
        for line in order
    }


def page(found: Mapping[str, Any]) -> str:
    """Markdown."""
    parts = [_HEAD, _table("all", {"all": found["all"]})]
    parts += [_table(name[3:], found[name]) for name in found if name.startswith("by ")]
    parts += ["## Sources left out\n\n*corrected*: the source's median error had the other sources set the level.\n"]
    parts += [_table("source", found["sources left out"])]
    if found["orders"]:
        each = found["orders"].values()
        told = f"rank correlation {median(o['correlation'] for o in each):.2f} (median), "
        told += f"regret {fmean(o['regret'] for o in each):.1%} (mean), {max(o['regret'] for o in each):.1%} (worst)"
        parts += [f"## Where a source varies only the plan\n\n{told}\n", _table("job", found["orders"])]
    if found["ratios"]:
        parts += [
            "## Ratios\n\nBy how much the ratio of two plans' predicted times is off that of the measured ones.\n"
        ]
        parts += [_table("pairs of one job", found["ratios"])]
    if found["between strategies"]:
        parts += ["## Between strategies, each with its fastest plan\n", _table("job", found["between strategies"])]
    if found["over devices"]:
        parts += ["## Over numbers of devices\n\nTokens a second and device on most over those on fewest.\n"]
        parts += [_table("job", found["over devices"])]
    parts += ["## The farthest forty\n\nPredicted over measured time, and whether the measured one is inside.\n"]
    parts += [_table("row", found["farthest"])]
    reasons = "\n".join(f"- {count}: {reason}" for reason, count in found["set aside"].items())
    return "\n".join([*parts, f"## Set aside\n\n{reasons}"]) + "\n"


def _table(title: str, rows: Mapping[str, Mapping[str, float | int | str]]) -> str:
    keys = list(next(iter(rows.values()), {}))
    lines = [f"| {' | '.join([title, *(key.replace('_', '-') for key in keys)])} |", "|" + "---|" * (len(keys) + 1)]
    lines += [f"| {name} | {' | '.join(_cell(key, row[key]) for key in keys)} |" for name, row in rows.items()]
    return "\n".join(lines) + "\n"


def _cell(key: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    return f"{value:.2f}" if key in ("correlation", "others") else f"{value:+.1%}" if key == "bias" else f"{value:.1%}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.speed", allow_abbrev=False)
    parser.add_argument("--truth", type=Path, action="append", metavar="FILE", help="rows about speed; repeatable")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write every scored row there")
    parser.add_argument("--sources", action="store_true", help="tell every row without each source as well")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep each row's figures there, and go on from them")
    parser.add_argument("--scored", type=Path, metavar="FILE", help="figures of rows that --rows wrote")
    return parser


if __name__ == "__main__":
    sys.exit(main())
