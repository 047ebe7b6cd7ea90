"""The execution matrix on this machine's CPU: loops × strategies × variations, each a real job of `plan --execute`.

    .venv/bin/python -m benchmarks.real.matrix

writes benchmarks/results/matrix.json and .md after every cell, and says how many of all have been run. Cells and checks
are those of tests/execution/test_matrix.py; each is compared with one process of plain torch.
"""

import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import deepspeed
import torch
import transformers

from benchmarks.places import RESULTS
from gpu_plan.planner.units import format_bytes
from tests.support.matrix import STEPS, TOLERANCE, Cell, cells, furthest, launch, make_weights, wrong_inside
from tests.support.plain_training import reference

Row = dict[str, Any]


def row(cell: Cell, model: Path, folder: Path) -> Row:
    """One cell's row; a launch that leaves no record is a row with its error."""
    started = time.monotonic()
    try:
        ran = launch(cell, model, folder)
    except Exception as problem:  # the table says what failed and goes on
        return {"cell": cell.label(), "error": f"{type(problem).__name__}: {problem}"}
    expected = reference(cell, model)
    same_length = len(ran.losses) == len(expected) == STEPS and ran.code == 0
    memory = ran.comparison.memory[0]
    return {
        "cell": cell.label(),
        "loop": cell.loop,
        "strategy": cell.strategy,
        "variation": cell.variation,
        "ranks": cell.ranks,
        "exit_code": ran.code,
        "seen_strategy": sorted({str(rank.actual.strategy) for rank in ran.run.ranks}),
        "records": len(ran.run.ranks),
        "not_as_planned": wrong_inside(ran),
        "losses": ran.losses,
        "one_process": list(expected),
        "furthest_from_one_process": furthest(ran, expected) if same_length else None,
        "predicted_peak_allocated": memory.predicted,
        "measured_resident_above_base": memory.measured,
        "seconds": round(time.monotonic() - started, 1),
    }


def run(keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All cells; `keep` gets what there is after each."""
    with tempfile.TemporaryDirectory(prefix="plan-matrix-") as name:
        folder = Path(name)
        model = make_weights(folder)
        rows: list[Row] = []
        result = {**_versions(), "planned_cells": len(cells()), "cells": rows}
        for cell in sorted(cells(), key=_most_telling_first):
            found = row(cell, model, folder)
            rows.append(found)
            keep(result)
            print(found["cell"], found.get("furthest_from_one_process"), found.get("error", ""), flush=True)
    return result


def _most_telling_first(cell: Cell) -> tuple[bool, bool]:
    """What clips by its own file, and is not to clip."""
    return cell.variation != "not clipped", not cell.strategy.startswith("zero")


def _versions() -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": accelerate.__version__,
        "deepspeed": deepspeed.__version__,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} cores, gloo",
        "tolerance": TOLERANCE,
    }


def passed(found: Row, tolerance: float) -> bool:
    """Whether a cell ended well, ran as planned, and learnt the same."""
    apart = found.get("furthest_from_one_process")
    return found.get("exit_code") == 0 and not found["not_as_planned"] and apart is not None and apart < tolerance


def markdown(result: dict[str, Any]) -> str:
    """The result for people."""
    rows, tolerance, planned = result["cells"], result["tolerance"], result["planned_cells"]
    apart = [r["furthest_from_one_process"] for r in rows if r.get("furthest_from_one_process") is not None]
    lines = [
        "# Execution matrix, on CPU processes",
        "",
        f"torch {result['torch']}, transformers {result['transformers']}, accelerate {result['accelerate']}, deepspeed "
        f"{result['deepspeed']}, {result['machine']}. Written by `python -m benchmarks.real.matrix`.",
        "",
        f"- {len(rows)} of {planned} cells were run"
        + (": the others were not, for want of time." if len(rows) < planned else "."),
        f"- {sum(passed(r, tolerance) for r in rows)} of {len(rows)} cells: launched by `plan --execute`, ended well, "
        "every rank saw the planned strategy, world size, micro batch, accumulation and parameter count, and the loss "
        f"of each of {STEPS} steps is that of one process of plain torch on the same samples, within {tolerance:g} "
        "(relative).",
        f"- Largest difference of a loss: {max(apart, default=0):.1e} (relative; fp32).",
        "",
        "| loop | strategy | variation | ranks | as planned, seen from inside | losses against one process "
        "| predicted allocated | resident above base | seconds |",
        "|---|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for r in rows:
        if "error" in r:
            lines.append(f"| {r['cell']} | | | | {r['error'][:200]} | | | | |")
            continue
        seen = "yes" if not r["not_as_planned"] else "; ".join(r["not_as_planned"])
        difference = r["furthest_from_one_process"]
        told = "-" if difference is None else f"{difference:.1e}"
        bytes_of = [r["predicted_peak_allocated"], r["measured_resident_above_base"]]
        predicted, measured = ("-" if size is None else format_bytes(int(size)) for size in bytes_of)
        lines.append(
            f"| {r['loop']} | {r['strategy']} | {r['variation']} | {r['ranks']} | {seen} | {told} "
            f"| {predicted} | {measured} | {r['seconds']} |"
        )
    return "\n".join([*lines, "", *NOTES, ""])


NOTES = (
    "A tiny Llama (0.87M parameters, fp32), global batch 8, sequence length 32, AdamW, one epoch whose last step "
    "has an odd number of micro batches. `clipped`: to norm 0.5, with weight decay 5, a schedule, and dropout whose "
    "masks are made from the samples, so that a sample loses the same on whichever rank it is; `not clipped`: the same "
    "without; `bare`: none of them; `random`: in one process, torch's own dropout as well. Predicted is "
    "the worst rank's peak of allocated memory; a CPU rank can only tell its resident memory, which also holds the "
    "libraries that the script imports (some 350 MiB): the two are not comparable. What real ranks allocate is "
    "compared to the byte in distributed_cpu.md.",
)


def write(result: dict[str, Any]) -> None:
    """Both files."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "matrix.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "matrix.md").write_text(markdown(result))


def main() -> None:
    print(markdown(run(write)))


if __name__ == "__main__":
    main()
