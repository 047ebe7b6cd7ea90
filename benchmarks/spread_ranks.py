"""Replayed ranks of tensor and expert parallel, FSDP2 and HSDP beside them, against real ones on gloo, rank by rank.

    .venv/bin/python -m benchmarks.spread_ranks [--again] [--most CASES]

writes benchmarks/results/spread_ranks.json and .md; a case that stands there is kept, unless `--again`. Each rank is
compared with the replay of its own place. What is left out of the comparison stands in
tests/support/ranks/comparison.py.
"""

import argparse
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.support.distributed_reference import RankRun, run_ranks
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import differences, measured, replayed
from tests.support.ranks.replay import stream_of
from tests.support.ranks.tensor_cases import (
    EIGHT_RANKS,
    EXPERTS_OF_FOUR,
    EXPERTS_OF_TWO,
    FOUR_RANKS,
    TIED_FOUR,
    TWO_RANKS,
    UNEVEN,
)

RESULTS = Path(__file__).parent / "results"
WORLDS: dict[int, Sequence[RankCase]] = {
    2: (*TWO_RANKS, *EXPERTS_OF_TWO, *(case for case in UNEVEN[2] if case not in TWO_RANKS)),
    4: (*FOUR_RANKS, *TIED_FOUR, *EXPERTS_OF_FOUR, *UNEVEN[4]),
    8: EIGHT_RANKS,
}
LAUNCHES = 4
"""A thread of gloo may free what a collective put out, unseen by the profiler: it hits another rank each time."""

Row = dict[str, Any]


def row(run: RankRun, world_size: int) -> Row:
    """How far each rank is from its replay at first, and at the best of some launches."""
    case = run.case
    base: Row = {"case": case.label(), "ranks": world_size}
    if run.error:
        return {**base, "refused": run.error.strip().splitlines()[-1][:200]}
    planned = range(1) if case.crowded else range(world_size)
    ours = {rank: replayed(stream_of(case, world_size, rank), case.micro_batch) for rank in planned}
    first = {rank: differences(ours[rank], measured(run.references[rank], case)) for rank in planned}
    best = dict(first)
    for _ in range(LAUNCHES - 1):
        if not any(best.values()):
            break
        again = run_ranks([case], world_size)[0]
        for rank in [rank for rank, apart in best.items() if apart and not again.error]:
            found = differences(ours[rank], measured(again.references[rank], case))
            best[rank] = min(best[rank], found, key=lambda apart: sum(map(abs, apart.values())))
    return {
        **base,
        "planned_ranks": len(planned),
        "figures": sum(len(figures.flat()) for figures in ours.values()),
        "equal_at_first": sum(len(ours[rank].flat()) - len(first[rank]) for rank in planned),
        "equal": sum(len(ours[rank].flat()) - len(best[rank]) for rank in planned),
        "largest_at_first": _largest(first),
        "largest": _largest(best),
        "highest_peak": max(max(figures.step_peaks) for figures in ours.values()),
    }


def _largest(apart: dict[int, dict[str, int]]) -> int:
    """Replayed minus real, of the figure that is furthest off."""
    return max((gap for gaps in apart.values() for gap in gaps.values()), key=abs, default=0)


def page(found: Sequence[Row]) -> str:
    """The results as Markdown."""
    ran = [one for one in found if "refused" not in one]
    alike = [one for one in ran if one["equal"] == one["figures"]]
    lines = [
        "# Ranks that share a model: replayed against real, on CPU",
        "",
        f"torch {torch.__version__}, transformers {transformers.__version__}, gloo, {platform.machine()}, 1 thread a"
        " rank. Written by `python -m benchmarks.spread_ranks`.",
        "",
        f"- {len(alike)} of {len(ran)} cases: every figure of two iterations equal on every planned rank, to the byte"
        f" ({sum(one['equal'] for one in ran)} of {sum(one['figures'] for one in ran)} figures).",
        f"- At the first launch {sum(one['equal_at_first'] for one in ran)} were. A thread of gloo can be the last to"
        " hold what a collective put out, and frees it unseen by torch's profiler, so that the rank seems to hold on:"
        f" a rank that stood above was launched up to {LAUNCHES - 1} times more. The size is that of one exchange, the"
        " rank another one each time; NCCL has no such threads.",
        "",
        "| case | ranks | compared | figures | equal | at first | largest difference | at first | highest step peak |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one['case']} | {one['ranks']} | {one['planned_ranks']} | {one['figures']} | {one['equal']} |"
        f" {one['equal_at_first']} | {one['largest']} | {one['largest_at_first']} | {one['highest_peak']} |"
        for one in ran
    ]
    lines += [f"\n{one['case']}: {one['refused']}" for one in found if "refused" in one]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the cases that are not known yet, and writes both files after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spread_ranks")
    parser.add_argument("--again", action="store_true", help="run all of them anew")
    parser.add_argument("--most", type=int, default=1000, help="cases of this call")
    given = parser.parse_args()
    path = RESULTS / "spread_ranks.json"
    known: dict[tuple[str, int], Row] = {}
    if path.exists() and not given.again:
        known = {(one["case"], one["ranks"]): one for one in json.loads(path.read_text())}
    jobs = [(case, size) for size, cases in WORLDS.items() for case in cases]
    for case, size in [(case, size) for case, size in jobs if (case.label(), size) not in known][: given.most]:
        known[case.label(), size] = row(run_ranks([case], size)[0], size)
        found = [known[key] for one, ranks in jobs if (key := (one.label(), ranks)) in known]
        path.write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".md").write_text(page(found))


if __name__ == "__main__":
    main()
