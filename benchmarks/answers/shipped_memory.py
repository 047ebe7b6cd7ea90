"""The most memory that planning each shipped model takes, by one command.

    .venv/bin/python -m benchmarks.answers.shipped_memory [--bare PYTHON] [--looks 1]

Every model of `planner/trace/shipped/data` whose steps are shipped traced, as `plan MODEL --gpus 8xH100` with an empty
home, and four large ones on clusters of their own. Memory is that of all processes together, what they share counted
once (Pss), looked at every 20 milliseconds; of several runs the most. `--bare` is an interpreter with this package's
base dependencies alone: torch installed makes more kinds of plans possible. Writes benchmarks/results/shipped_memory.md
and .json.
"""

import argparse
import json
import platform
import sys
import tempfile
from typing import Any

from benchmarks.answers.first_answer import command_of, most_mib
from benchmarks.places import RESULTS
from gpu_plan.planner.trace.shipped.book import read_book
from gpu_plan.planner.trace.shipped.lookup import BOOKS

GOAL = 300
"""MiB."""
LARGE = (
    ("deepseek-ai/DeepSeek-V3", "4x8xH200"),
    ("Qwen/Qwen3-235B-A22B", "4x8xH200"),
    ("moonshotai/Kimi-K2.5", "16x8xH200"),
    ("meta-llama/Llama-3.1-405B", "16x8xH100"),
)


def jobs() -> list[tuple[str, str]]:
    """Models and their devices."""
    models = sorted(read_book(path.read_bytes()).model for path in BOOKS.glob("*.traces"))
    return [*((model, "8xH100") for model in models), *LARGE]


def measured(python: str, model: str, gpus: str, looks: int) -> int:
    """MiB."""
    found = []
    for _ in range(looks):
        with tempfile.TemporaryDirectory() as home:
            found.append(most_mib(command_of(python, (model, "--gpus", gpus)), home))
    return round(max(found))


def page(found: dict[str, Any]) -> str:
    """The figures as a page."""
    rows = sorted(found["jobs"], key=lambda one: -int(one["mib"]))
    below = sum(one["mib"] < GOAL for one in rows)
    return "\n".join(
        [
            "# Memory of planning what is shipped traced",
            "",
            f"The most that all processes of a plan hold together, nothing kept ({found['machine']},"
            f" {'without torch' if found['bare'] else 'with torch installed'}). {below} of {len(rows)} stay below"
            f" {GOAL} MiB. Written by `python -m benchmarks.answers.shipped_memory`.",
            "",
            "| model | GPUs | MiB |",
            "|---|---|---|",
            *(f"| {one['model']} | {one['gpus']} | {one['mib']} |" for one in rows),
            "",
        ]
    )


def main() -> int:
    """Measures, writes and shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bare", default="", metavar="PYTHON")
    parser.add_argument("--looks", type=int, default=1, metavar="N", help="runs of each")
    arguments = parser.parse_args()
    found: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "bare": bool(arguments.bare),
        "jobs": [],
    }
    for model, gpus in jobs():
        mib = measured(arguments.bare or sys.executable, model, gpus, arguments.looks)
        found["jobs"].append({"model": model, "gpus": gpus, "mib": mib})
        print(f"{mib:>5} MiB  {model} on {gpus}", flush=True)
    (RESULTS / "shipped_memory.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "shipped_memory.md").write_text(page(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
