"""Replayed ranks of tensor and expert parallel, FSDP2 and HSDP beside them, against real ones on gloo, rank by rank.

    .venv/bin/python -m benchmarks.real.spread_ranks [--again] [--at-once CASES]

writes benchmarks/results/spread_ranks.json and .md; a case that stands there is kept, unless `--again`. Each rank is
compared with the replay of its own place. What is left out of the comparison stands in
tests/support/ranks/comparison.py.
"""

import argparse
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from benchmarks.places import RESULTS
from tests.support.distributed_reference import RankRun, run_ranks
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import RankFigures, differences, measured, replayed
from tests.support.ranks.replay import stream_of
from tests.support.ranks.tensor_cases import WORLDS

LAUNCHES = 4
"""A thread of gloo may free what a collective put out, unseen by the profiler: it hits another rank each time."""

Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Compared:
    """One case: the replay of each rank that is planned, and how far the real ones were from it."""

    case: RankCase
    ranks: int
    replays: dict[int, RankFigures]
    first: dict[int, dict[str, int]] = field(default_factory=dict)
    """Replayed minus real by rank, of the figures that differed at the first launch."""
    best: dict[int, dict[str, int]] = field(default_factory=dict)
    refused: str = ""

    @property
    def done(self) -> bool:
        return bool(self.refused) or (bool(self.first) and not any(self.best.values()))

    def take(self, run: RankRun) -> None:
        """Another launch."""
        if run.error:
            self.refused = "" if self.first else run.error.strip().splitlines()[-1][:200]
            return
        found = {
            rank: differences(ours, measured(run.references[rank], self.case)) for rank, ours in self.replays.items()
        }
        if not self.first:
            self.first, self.best = found, dict(found)
        for rank, apart in found.items():
            self.best[rank] = min(self.best[rank], apart, key=lambda gaps: sum(map(abs, gaps.values())))

    def row(self) -> Row:
        """Plain values."""
        base: Row = {"case": self.case.label(), "ranks": self.ranks}
        if self.refused:
            return {**base, "refused": self.refused}
        figures = {rank: len(ours.flat()) for rank, ours in self.replays.items()}
        return {
            **base,
            "planned_ranks": len(figures),
            "figures": sum(figures.values()),
            "equal_at_first": sum(figures[rank] - len(apart) for rank, apart in self.first.items()),
            "equal": sum(figures[rank] - len(apart) for rank, apart in self.best.items()),
            "largest_at_first": _largest(self.first),
            "largest": _largest(self.best),
            "highest_peak": max(_highest(ours) for ours in self.replays.values()),
        }


def rows(cases: Sequence[RankCase], world_size: int) -> list[Row]:
    """One row per case: all of them in one launch, then those that differ again."""
    compared = []
    for case in cases:
        planned = range(1) if case.crowded else range(world_size)
        replays = {rank: replayed(stream_of(case, world_size, rank), case.micro_batch) for rank in planned}
        compared.append(Compared(case=case, ranks=world_size, replays=replays))
    for _ in range(LAUNCHES):
        left = [one for one in compared if not one.done]
        if left:
            for one, run in zip(left, run_ranks([one.case for one in left], world_size), strict=True):
                one.take(run)
    return [one.row() for one in compared]


def _highest(figures: RankFigures) -> int:
    return max(*figures.step_peaks, *(max(one.forward_peak, one.backward_peak) for one in figures.passes))


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
        " rank. Written by `python -m benchmarks.real.spread_ranks`.",
        "",
        f"- {len(alike)} of {len(ran)} cases: every figure of two iterations equal on every planned rank, to the byte"
        f" ({sum(one['equal'] for one in ran)} of {sum(one['figures'] for one in ran)} figures).",
        f"- At the first launch {sum(one['equal_at_first'] for one in ran)} were; a case that differs is launched up to"
        f" {LAUNCHES - 1} times more. ProcessGroupGloo's thread drops its reference after it has marked a work as done,"
        " and may be the last to hold what a collective put out or was given; the profiler does not see what it frees."
        " Groups have one thread here, a barrier follows each wait, and what a collective was given is held until then"
        " (`tests/support/ranks/settled_groups.py`): without that, a rank stood up to 286,720 bytes above on a loaded"
        " machine, another rank each time. Cases of catalog classes ran before what was given was held: those that"
        " torchtitan's way differed by then did not in two launches each since.",
        "- Bailing and Kimi-Linear have 512 and 256 experts here, more than a batch chooses: even choices fell on the"
        " first rank's alone until ranks took turns (456,592 and 200,640 bytes on the second).",
        "- What else differs, by 32 to 1,024 bytes: what transformers loads of a late rank's uneven shard has no"
        " padding before the first forward gives it some (`_fsdp_param.py: reset_sharded_param`). It is no peak.",
        "",
        "| case | ranks | compared | figures | equal | at first | largest difference | at first | highest peak |",
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real.spread_ranks")
    parser.add_argument("--again", action="store_true", help="run all of them anew")
    parser.add_argument("--at-once", type=int, default=8, help="cases of one launch")
    given = parser.parse_args()
    path = RESULTS / "spread_ranks.json"
    known: dict[tuple[str, int], Row] = {}
    if path.exists() and not given.again:
        known = {(one["case"], one["ranks"]): one for one in json.loads(path.read_text())}
    order = [(case.label(), size) for size, cases in WORLDS.items() for case in cases]
    for size, cases in WORLDS.items():
        for part in batched([case for case in cases if (case.label(), size) not in known], given.at_once):
            known |= {(one["case"], one["ranks"]): one for one in rows(part, size)}
            found = [known[key] for key in order if key in known]
            path.write_text(json.dumps(found, indent=1) + "\n")
            path.with_suffix(".md").write_text(page(found))


def batched(cases: Sequence[RankCase], size: int) -> Iterator[Sequence[RankCase]]:
    """So many at a time."""
    for start in range(0, len(cases), size):
        yield cases[start : start + size]


if __name__ == "__main__":
    main()
