"""Hostile inputs: at least 3,000 generated command lines and files, each run by the real command, and what came of it.

    python -m benchmarks.damage.hostile_inputs [--kind K] [--from N] [--count N] [--processes 300] [--only NAME]

writes benchmarks/results/hostile_inputs.json and .md. Cases are made from kind and seed alone (`benchmarks.hostile`),
so that every one can be run again: `--only model-17`. Most run in forks of a process that has imported torch; some
hundred as processes of their own, among planted modules. A fixed sample is tests/check/test_hostile_inputs.py.
"""

import argparse
import json
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.hostile import worker
from benchmarks.hostile.kinds import KINDS, generate, whole_set
from benchmarks.places import RESULTS

_PART = "Not the whole set: the run was ended early. Which seeds ran stands in the JSON."
WHAT = ("traceback", "hang", "over 4 GiB", "was written", "code run", "exit code", "lines of error", "shown raw")
"""What is counted, each by the words that a fault holds."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the set, or a part of it; the results are written where all of it ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS))
    parser.add_argument("--only", help="one case, such as model-17; its files are kept")
    parser.add_argument("--processes", type=int, default=300, help="how many run as processes of their own")
    parser.add_argument("--part", default="1/1", help="every Nth case: 1/2 and 2/2 for two at once")
    parser.add_argument("--keep", type=Path, help="write the results of this part there")
    parser.add_argument("--join", type=Path, nargs="+", help="write the report from kept parts")
    args = parser.parse_args(argv)
    if args.join:
        write([row for path in args.join for row in json.loads(path.read_text(encoding="utf-8"))])
        return
    if args.only:
        kind, _, seed = args.only.rpartition("-")
        cases = [(kind, int(seed))]
    else:
        cases = [case for case in whole_set() if args.kind in (None, case[0])]
    own = {case for at, case in enumerate(cases) if at % max(1, len(cases) // max(1, args.processes)) == 1}
    number, of = map(int, args.part.split("/"))
    worker.prepare()
    rows = []
    for kind, seed in cases[number - 1 :: of]:
        case = generate(kind, seed)
        result = worker.started(case) if (kind, seed) in own else worker.forked(case)
        row: dict[str, object] = {"name": result.name, "process": (kind, seed) in own, "code": result.code}
        row |= {"faults": list(result.faults), "peak_bytes": result.peak_bytes}
        row |= {"words": list(result.words), "said": result.said} if result.faults else {}
        rows.append(row)
        if result.faults or args.only:
            print(
                f"{result.name}: {result.faults}\n    plan {result.words!a}"[:600] + f"\n    {result.said!a}",
                flush=True,
            )
        if args.keep:
            args.keep.write_text(json.dumps(rows), encoding="utf-8")
    if not args.keep and not args.only and args.kind is None:
        write(rows)


def _seed(row: dict[str, object]) -> int:
    return int(str(row["name"]).rpartition("-")[2])


def write(rows: list[dict[str, object]]) -> None:
    """The two files."""
    faulty = [row for row in rows if row["faults"]]
    faults = [" ".join(map(str, row["faults"])) for row in faulty if isinstance(row["faults"], list)]
    counted = {what: sum(what in said for said in faults) for what in WHAT}
    codes = Counter(str(row["code"]) for row in rows)
    kinds = Counter(str(row["name"]).rpartition("-")[0] for row in rows)
    summary = {
        "inputs": len(rows),
        "of": len(whole_set()),
        "as_processes_of_their_own": sum(bool(row["process"]) for row in rows),
        "counted": counted,
        "exit_codes": dict(sorted(codes.items())),
        "kinds": dict(kinds),
        "largest_peak_bytes": max(int(str(row["peak_bytes"])) for row in rows),
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "faulty": faulty,
        "seeds": {
            kind: sorted(_seed(row) for row in rows if str(row["name"]).startswith(f"{kind}-")) for kind in kinds
        },
    }
    (RESULTS / "hostile_inputs.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="ascii")
    lines = [
        "# Hostile inputs",
        "",
        f"{len(rows):,} of {len(whole_set()):,} generated inputs"
        f" ({summary['as_processes_of_their_own']} as processes of their own, among"
        " planted modules), each made from its kind and seed, by `python -m benchmarks.damage.hostile_inputs`;"
        f" {summary['machine']}.",
        "",
        "| counted | inputs |",
        "|---|---|",
        *(f"| {what} | {count} |" for what, count in counted.items()),
        "",
        "| exit code | inputs |",
        "|---|---|",
        *(f"| {code} | {count} |" for code, count in sorted(codes.items())),
        "",
        "| kind | inputs |",
        "|---|---|",
        *(f"| {kind} | {count} |" for kind, count in kinds.items()),
        "",
        f"Largest resident size: {int(str(summary['largest_peak_bytes'])) / 2**30:.2f} GiB.",
        *(["", _PART] if len(rows) < len(whole_set()) else []),
    ]
    if faulty:
        lines += ["", "Not as it must be:", "", *(f"- `{row['name']}`: {row['faults']}" for row in faulty)]
    (RESULTS / "hostile_inputs.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
