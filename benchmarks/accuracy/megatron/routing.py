"""How many tokens came to a rank's experts, by what the rank itself says: bytes that stand between two steps.

`python -m benchmarks.accuracy.megatron.routing FOLDER CLONE` writes what this module reads: of jobs with one expert a
rank, whose tokens no loss keeps even, each step at which the peak rose, with what stood when that step was over.
FOLDER holds megatron_golden.json, CLONE is a clone of Megatron-LM, whose files the rows name.

The dispatcher names until the layer's next forward pass, of every row that came, its place (8 bytes) and its weight in
fp32 (4 bytes): token_dispatcher.py: MoEAllGatherTokenDispatcher, reversed_local_input_permutation_mapping and
local_probs. So a difference of rest between two steps of a run, or of one job on two GPUs, is a number of rows.
"""

import argparse
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.accuracy.megatron.golden import Row
from benchmarks.accuracy.megatron.jobs import Job, profile

FOUND = Path(__file__).with_name("routing.json")
KEPT = 8 + 4
"""Bytes of a row that came, between two steps."""
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Rise:
    """A step at which the peak rose; bytes allocated after it, and the peak."""

    step: int
    rest: int
    peak: int


def main() -> None:
    """Writes `routing.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where megatron_golden.json lies")
    parser.add_argument("clone", type=Path, help="a clone of Megatron-LM")
    given = parser.parse_args()
    rows = json.loads((given.folder / "megatron_golden.json").read_text(encoding="utf-8"))
    chosen = [row for row in rows if row["preferred_of_case_and_gpu"] and "te_ep8_resume_torch_dist" in row["case"]]
    found = {row["id"]: list(_rises(given.clone, row)) for row in chosen if "dev" in row["software"]}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in sorted(found.items()) if one)
    FOUND.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


def _rises(clone: Path, row: Any) -> Iterator[tuple[int, int, int]]:
    path, _, commit = row["source"].partition(":")[2].partition("@")
    shown = subprocess.run(["git", "-C", str(clone), "show", f"{commit}:{path}"], capture_output=True, text=True)
    values = json.loads(shown.stdout)
    rests, peaks = (values[name]["values"] for name in ("mem-allocated-bytes", "mem-max-allocated-bytes"))
    highest = 0
    for step in sorted(peaks, key=int):
        if peaks[step] > highest:
            highest = peaks[step]
            yield int(step), int(rests[step]), int(peaks[step])


@cache
def rises() -> dict[str, tuple[Rise, ...]]:
    """Of each run by its id."""
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    return {key: tuple(Rise(*one) for one in steps) for key, steps in found.items()}


def rows_of_all_layers(job: Job) -> int:
    """Rows that come to the rank's experts in one micro batch under an even choice, all layers together."""
    assert job.model.experts is not None
    tokens = job.micro_batch * job.seq_len * job.layout.expert
    return tokens * job.model.experts.chosen // job.layout.expert * job.model.layers


def bytes_of_a_row(job: Job) -> float:
    """By how much a row more raises the planned peak."""
    more = replace(job, layout=replace(job.layout, load=1.25))
    peaks = [profile(one, 0).peak_allocated_bytes for one in (job, more)]
    return (peaks[1] - peaks[0]) / (rows_of_all_layers(job) * 0.25)


def moved(row: Row) -> bool:
    """Whether the run says that its routing moved its peak: both rose after the second step, by its own bytes."""
    steps = rises().get(row.id, ())
    return len(steps) > 1 and steps[-1].rest > steps[1].rest


def lines(rows: list[Row], planned: dict[str, int]) -> Iterator[str]:
    """The section of the page: what the runs say of their own routing. `planned`: peaks under an even choice by id."""
    runs = [row for row in rows if row.job is not None and len(rises().get(row.id, ())) > 1]
    yield "### Routing, by what stands between two steps\n"
    yield (
        "These jobs have one expert a rank (two on four GPUs), two chosen for each token, and no loss that keeps"
        " choices even (`--moe-aux-loss-coeff` is 0). A row more raises the planned peak by"
        f" {bytes_of_a_row(_job(runs[0])):,.0f} bytes, and {KEPT} of it stand until the next step (the dispatcher's"
        f" place and weight of it), {bytes_of_a_row(_job(runs[0])) / KEPT:.0f} to 1. Where a run's peak rose after its"
        " second step, what stood between steps rose with it, as many times less:\n"
    )
    yield "| run | GPU | peak rose by, MiB | rest rose by, bytes | ratio | rows of an even share, by the peak |"
    yield "|---|---|---|---|---|---|"
    for row in runs:
        first, last = rises()[row.id][1], rises()[row.id][-1]
        share = 1 + (row.measured - planned[row.id]) / (bytes_of_a_row(_job(row)) * rows_of_all_layers(_job(row)))
        ratio = f"{(last.peak - first.peak) / (last.rest - first.rest):.0f}" if last.rest > first.rest else ""
        rose = f"{(last.peak - first.peak) / _MIB:.1f} | {last.rest - first.rest:,} | {ratio}"
        yield f"| {row.case} | {row.gpu} | {rose} | {share:.2f} |"
    yield from _pair(runs, planned)


def _pair(runs: list[Row], planned: dict[str, int]) -> Iterator[str]:
    """One job on two GPUs whose states lie alike: rows by the difference of rest, and the peak that follows."""
    by_gpu = {row.gpu: row for row in runs if row.case.endswith("dist_dist_muon")}
    few, many = by_gpu["GB200"], by_gpu["H100"]
    ours, theirs = rises()[few.id][1], rises()[many.id][1]
    fewer = (theirs.rest - ours.rest) // KEPT
    kernels = planned[few.id] - planned[many.id]
    expected = theirs.peak + kernels - fewer * bytes_of_a_row(_job(few))
    yield (
        f"\n{few.case} on both GPUs, second step: {theirs.rest - ours.rest:,} bytes less stand on GB200, which are"
        f" {fewer:,} rows of {rows_of_all_layers(_job(few)):,} ({fewer / rows_of_all_layers(_job(few)):.0%}). With so"
        f" many fewer, and with its own attention kernels, H100's {theirs.peak / _MIB:,.1f} MiB become"
        f" {expected / _MIB:,.1f}; GB200 measured {ours.peak / _MIB:,.1f} ({expected / ours.peak - 1:+.2%}). Weights"
        " are drawn on the GPU, in blocks as many as its multiprocessors take (pytorch, aten/src/ATen/native/cuda/"
        "DistributionTemplates.h: calc_execution_policy), so that one seed gives other routers on each kind of GPU; and"
        " the tokens are the data's. Neither is in the arguments. `--set megatron.expert_load` plans a rank with"
        " another share.\n"
    )


def _job(row: Row) -> Job:
    assert row.job is not None
    return row.job


if __name__ == "__main__":
    main()
