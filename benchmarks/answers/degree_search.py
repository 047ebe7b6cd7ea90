"""The full search over strategies and degrees: how long it takes, how much it looks at, and whether it finds the best.

    .venv/bin/python -m benchmarks.answers.degree_search [--again] [--only NAME]

writes benchmarks/results/degree_search.json and .md. Each search is a process of its own without any cache; one that
stands in the results already is kept, unless `--again`. Brute force is the same search with no degree left out.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.places import RESULTS

MODELS = (
    "meta-llama/Llama-3.1-8B",
    "mistralai/Mixtral-8x7B-v0.1",
    "meta-llama/Llama-3.1-70B",
    "Qwen/Qwen3-235B-A22B",
    "meta-llama/Llama-3.1-405B",
    "deepseek-ai/DeepSeek-V3",
)
CLUSTERS = ("8xH100", "16x8xH100", "128x8xH100", "1024x8xH100", "16384x8xH100")
SECONDS = 1200

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A job small enough for every candidate to be tried."""

    model: str
    gpus: str
    prefer: str

    @property
    def name(self) -> str:
        return f"tiny {self.model} on {self.gpus}, --prefer {self.prefer}"


SPACES = (
    Space(model="llama", gpus="2xH100", prefer="balance"),
    Space(model="mixtral", gpus="2xH100", prefer="balance"),
    Space(model="mixtral", gpus="4xH100", prefer="speed"),
    Space(model="llama", gpus="4xH100", prefer="balance"),
    Space(model="mixtral", gpus="2x2xA100", prefer="balance"),
)


def searched(model: str, gpus: str) -> Row:
    """One search of a whole model, in a process of its own."""
    base: Row = {"model": model, "gpus": gpus}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    words = [sys.executable, "-m", "gpu_plan", model, "--gpus", gpus, "--json", "--no-cache"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {**base, "problem": f"not done in {SECONDS} s"}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        return {**base, "problem": done.stderr.strip().splitlines()[-1][:160]}
    found = json.loads(done.stdout)
    best = next(iter(found["plans"]), None)
    return {
        **base,
        "seconds": round(time.monotonic() - started, 1),
        "processor_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "kinds": found["search"]["kinds"],
        "candidates": found["search"]["candidates"],
        "left_out": len(found["search"]["left_out"]),
        "best": None if best is None else _words(best),
    }


def _words(plan: Row) -> str:
    choice = plan["strategy"]
    named = (("tensor_parallel", "TP"), ("expert_parallel", "EP"), ("context_parallel", "CP"))
    degrees = [f"{word} {choice[key]}" for key, word in named if choice.get(key, 1) > 1]
    degrees += [f"{choice['dp_replicate']} replicas"] if choice.get("dp_replicate", 1) > 1 else []
    degrees += [f"{choice['offload']} offload"] if choice["offload"] != "none" else []
    return " ".join((choice["name"], *degrees, f"({plan['verdict']})"))


def by_force(space: Space) -> Row:
    """The search of a small space, and the same with nothing left out. Degrees are looked at in both although every
    device holds these models whole, for which a rule leaves them out."""
    from gpu_plan.planner.search.search import search
    from gpu_plan.planner.workload.prefer import Prefer
    from tests.trace.test_degrees_by_force import LLAMA, MIXTRAL, Everything, Shared, first, task_of

    config = {"llama": LLAMA, "mixtral": MIXTRAL}[space.model]
    with tempfile.TemporaryDirectory(prefix="plan-space-") as name:
        tasks = [task_of(kind, Path(name), config, space.gpus, global_batch=16) for kind in (Shared, Everything)]
        ours, every = (search(task, prefer=Prefer(space.prefer)) for task in tasks)
    return {
        "space": space.name,
        "kinds": ours.explored,
        "left_out": len(ours.left_out),
        "kinds_by_force": every.explored,
        "candidates": tasks[0].evaluator.evaluated,
        "candidates_by_force": tasks[1].evaluator.evaluated,
        "same": first(ours) == first(every),
    }


def page(found: Sequence[Row]) -> str:
    """The results as Markdown."""
    whole, small = [one for one in found if "model" in one], [one for one in found if "space" in one]
    same = sum(one["same"] for one in small)
    lines = [
        "# The full search over strategies and degrees",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores that other work shares: processor seconds say more than seconds."
        " No cache. Written by `python -m benchmarks.answers.degree_search`.",
        "",
        "| model | GPUs | seconds | processor seconds | kinds evaluated | candidates | kinds not traced | best plan |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one in whole:
        if "problem" in one:
            lines.append(f"| {one['model']} | {one['gpus']} | | | | | | {one['problem']} |")
            continue
        figures = ("seconds", "processor_seconds", "kinds", "candidates", "left_out")
        cells = " | ".join(f"{one[key]:,}" for key in figures)
        lines.append(f"| {one['model']} | {one['gpus']} | {cells} | {one['best'] or 'none fits'} |")
    lines += [
        "",
        "## Against brute force",
        "",
        f"{same} of {len(small)} small spaces: the same best plan, with the same bytes and seconds, as the search with"
        " nothing left out. More of them run in `tests/trace/test_degrees_by_force.py` (`make prove`).",
        "",
        "| space | kinds evaluated | not traced | by force | candidates | by force | same |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    lines += [
        f"| {one['space']} | {one['kinds']} | {one['left_out']} | {one['kinds_by_force']} | {one['candidates']} |"
        f" {one['candidates_by_force']} | {'yes' if one['same'] else 'NO'} |"
        for one in small
    ]
    return "\n".join(lines) + "\n"


def _order(one: Row, jobs: Sequence[tuple[str | None, str | None, str | None]]) -> int:
    return jobs.index((one.get("model"), one.get("gpus"), one.get("space")))


def main() -> None:
    """Searches what is not known yet, and writes both files after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers.degree_search")
    parser.add_argument(
        "--again", action="store_true", help="search anew what is known, all of it or what --only names"
    )
    parser.add_argument("--only", default="", help="models or spaces whose name contains this")
    given = parser.parse_args()
    path = RESULTS / "degree_search.json"
    known: list[Row] = json.loads(path.read_text()) if path.exists() else []
    if given.again:
        known = [one for one in known if given.only not in f"{one.get('model')} {one.get('gpus')} {one.get('space')}"]
    have = {(one.get("model"), one.get("gpus"), one.get("space")) for one in known}
    jobs = [(None, None, space.name) for space in SPACES] + [(m, gpus, None) for m in MODELS for gpus in CLUSTERS]
    spaces = {space.name: space for space in SPACES}
    for model, gpus, space in jobs:
        if (model, gpus, space) in have or given.only not in f"{model} {gpus} {space}":
            continue
        known.append(searched(model, gpus) if model and gpus else by_force(spaces[space or ""]))
        known.sort(key=lambda one: _order(one, jobs))
        path.write_text(json.dumps(known, indent=1) + "\n")
        (RESULTS / "degree_search.md").write_text(page(known))


if __name__ == "__main__":
    main()
