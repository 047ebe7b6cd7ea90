"""Real TRL runs on a CPU beside the same runs as captured: the table of what the slow test measured.

    .venv/bin/python -m pytest -q -m slow tests/capture/test_recipe_jobs.py --junitxml RUNS.xml
    .venv/bin/python -m benchmarks.real.recipe_runs RUNS.xml

Bytes above what stood before the step (parameters, buffers, inputs), under the rules of tests/support/replay_cpu.py.
Writes benchmarks/results/recipe_runs.md.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from benchmarks.places import RESULTS

_HEAD = """# Real TRL runs beside their plans

TRL's own trainers on a model of two layers, run for real on a CPU and captured: {equal} of {all} equal to the byte in
every figure. Bytes above parameters, buffers and inputs; where two figures stand, the first was measured and the second
planned. `simpo`'s labels, 2,048 bytes, were made before the step begins, where measuring sets in; a plan counts them
from where the loss meets them.
Made by `python -m benchmarks.real.recipe_runs` from `tests/capture/test_recipe_jobs.py`.

| recipe | trained parameters | peak of forward | peak of backward | when backward ends | optimizer state |
|---|---|---|---|---|---|
"""


class Run(NamedTuple):
    """One recipe: what was measured and what was planned, [forward, backward, end] in bytes."""

    name: str
    trainable: int
    state_bytes: int
    real: tuple[int, int, int]
    planned: tuple[int, int, int]


def runs(report: Path) -> list[Run]:
    """Those of a JUnit report, in its order."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        said = {one.get("name"): str(one.get("value")) for one in case.iter("property")}
        if "real" not in said:
            continue
        real, planned = json.loads(said["real"]), json.loads(said["planned"])
        forward, backward, _, end = planned
        found.append(
            Run(
                name=str(case.get("name")).partition("[")[2].removesuffix("]"),
                trainable=real["trainable"],
                state_bytes=real["state_bytes"],
                real=(*real["phases"], real["backward_end"]),
                planned=(forward, backward, end),
            )
        )
    return found


def page(found: list[Run]) -> str:
    """The table."""
    equal = sum(run.real == run.planned for run in found)
    return _HEAD.format(equal=equal, all=len(found)) + "".join(f"{_row(run)}\n" for run in found)


def _row(run: Run) -> str:
    pairs = zip(run.real, run.planned, strict=True)
    figures = [f"{real:,}" if real == planned else f"{real:,}, {planned:,}" for real, planned in pairs]
    return f"| `{run.name}` | {run.trainable:,} | {' | '.join(figures)} | {run.state_bytes:,} |"


if __name__ == "__main__":
    (RESULTS / "recipe_runs.md").write_text(page(runs(Path(sys.argv[1]))))
