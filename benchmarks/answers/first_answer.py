"""The first answer beside importing its class, and whole spaces, by one command.

    .venv/bin/python -m benchmarks.answers.first_answer [--bare PYTHON] [--pairs 5] [JOB ...]

Clock seconds, and processor seconds (user and system) of all processes of a plan, each with an empty home, in turns:
first the class, then the plan. Clock seconds mean something on an idle machine alone. Memory is that of all processes
together, what they share counted once, of one more run that is looked at all the time. `--bare` is an interpreter with
this package's base dependencies alone, for jobs that shipped traces answer; the class is imported by the one that runs
this. A job whose traces are kept is run twice, and the second one counted. Counts that no machine changes are
`benchmarks.answers.counts`, exact plans a second `benchmarks.answers.evaluation_speed`, the explorer's keys
`benchmarks.explorer.keys`. Jobs that are not asked for keep their figures. Writes benchmarks/results/first_answer.json
and .md.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.planner.search.aside.allowed import CORES

_PLAN = "import sys; sys.argv[0] = 'plan'; from gpu_plan.cli import entry; entry()"
_MIB = 1024**2
_LOOKS = 0.02
"""Seconds between two looks at a process's memory."""
_SHOWN = ("clock_seconds", "class_clock_seconds", "clock_ratio", "seconds", "class_seconds", "ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One question."""

    words: tuple[str, ...]
    goal: str
    imports: str = ""
    """Class that it is held against."""
    shipped: bool = False
    """Whether it is answered without torch."""
    kept: bool = False
    """Whether its traces are kept from a run before."""


JOBS = {
    "an 8B": Job(
        words=("meta-llama/Llama-3.1-8B", "--gpus", "8xH100"),
        goal="0.25 of the class, of its time",
        imports="LlamaForCausalLM",
        shipped=True,
    ),
    "an 8B at 8,192 tokens": Job(
        words=("meta-llama/Llama-3.1-8B", "--gpus", "8xH100", "--seq-len", "8192"),
        goal="1.3 times the class, processor time",
        imports="LlamaForCausalLM",
    ),
    "an 8B that is traced": Job(
        words=("CohereLabs/aya-23-8B", "--gpus", "8xH100"),
        goal="1.3 times the class, processor time",
        imports="CohereForCausalLM",
    ),
    "DeepSeek-V3": Job(
        words=("deepseek-ai/DeepSeek-V3", "--gpus", "4x8xH200"),
        goal="twice the class, processor time",
        imports="DeepseekV3ForCausalLM",
    ),
    "an 8B that generates": Job(
        words=("meta-llama/Llama-3.1-8B", "--gpus", "8xH100", "--task", "infer"),
        goal="less than the class, processor time",
        imports="LlamaForCausalLM",
        shipped=True,
    ),
    "an 8B that generates, traced": Job(
        words=("CohereLabs/aya-23-8B", "--gpus", "8xH100", "--task", "infer"),
        goal="twice the class, processor time",
        imports="CohereForCausalLM",
    ),
    "DeepSeek-V3 that generates": Job(
        words=("deepseek-ai/DeepSeek-V3", "--gpus", "2x8xH200", "--task", "infer"),
        goal="twice the class, processor time",
        imports="DeepseekV3ForCausalLM",
    ),
    "Qwen3-235B": Job(
        words=("Qwen/Qwen3-235B-A22B", "--gpus", "4x8xH200"),
        goal="twice the class, processor time",
        imports="Qwen3MoeForCausalLM",
    ),
    "Kimi-K2.5": Job(
        words=("moonshotai/Kimi-K2.5", "--gpus", "16x8xH200"),
        goal="twice the class, processor time",
        imports="Kimi_K25ForConditionalGeneration",
    ),
    "a 405B on 16,384 GPUs": Job(
        words=("meta-llama/Llama-3.1-405B", "--gpus", "2048x8xH100"), goal="5 s of time, 1 GiB", kept=True
    ),
}


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of one process and of all that it started."""

    clock: float
    processor: float


def command_of(python: str, words: Sequence[str]) -> list[str]:
    """`plan` with these words, by an interpreter."""
    return [python, "-c", _PLAN, *words]


def started(command: list[str], home: str) -> subprocess.Popen[bytes]:
    """The process, in a home of its own."""
    left_out = ("PYTHONDONTWRITEBYTECODE", "GPU_PLAN_CACHE", CORES)
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def took(command: list[str], home: str) -> Took:
    """What it takes. CalledProcessError where it ends in an error; that nothing fits is an answer."""
    begins = time.perf_counter()
    process = started(command, home)
    _, status, used = os.wait4(process.pid, 0)  # with whom it waited for itself
    clock = time.perf_counter() - begins
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise subprocess.CalledProcessError(process.returncode, command)
    return Took(clock, used.ru_utime + used.ru_stime)


def most_mib(command: list[str], home: str) -> float:
    """The most memory that it holds together with those that it started, in MiB."""
    process, most = started(command, home), 0
    while process.poll() is None:
        most = max(most, sum(map(_held_kib, _with_children(process.pid))))
        time.sleep(_LOOKS)
    return most * 1024 / _MIB


def _with_children(process: int) -> list[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended
        return []
    return [process, *map(int, children)]


def _held_kib(process: int) -> int:
    """Its memory, of what it shares its part (proc(5): Pss)."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measured(job: Job, pairs: int, bare: str) -> dict[str, Any]:
    """Medians of one job's pairs."""
    python = bare if job.shipped else sys.executable
    answers, classes = [], []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as home:
            if job.imports:
                imported = f"from transformers import {job.imports}"
                classes.append(took([sys.executable, "-c", imported], home))
            answers.append(took(_ready(job, python, home), home))
    with tempfile.TemporaryDirectory() as home:
        most = most_mib(_ready(job, python, home), home)
    return {
        "pairs": pairs,
        "clock_seconds": _median([one.clock for one in answers]),
        "class_clock_seconds": _median([one.clock for one in classes]),
        "clock_ratio": _median([mine.clock / its.clock for mine, its in zip(answers, classes, strict=False)]),
        "seconds": _median([one.processor for one in answers]),
        "class_seconds": _median([one.processor for one in classes]),
        "ratio": _median([mine.processor / its.processor for mine, its in zip(answers, classes, strict=False)]),
        "peak_mib": round(most),
    }


def _ready(job: Job, python: str, home: str) -> list[str]:
    """The command, where its traces are kept behind a run that kept them."""
    command = command_of(python, job.words)
    if job.kept:
        took(command, home)
        shutil.rmtree(Path(home) / "cache" / "gpu-plan" / "plans")
    return command


def _median(values: list[float]) -> float | None:
    return round(median(values), 2) if values else None


def page(found: dict[str, Any]) -> str:
    """The figures as a page."""
    rows = [
        f"| {name}: `plan {' '.join(job.words)}` | {one['pairs']} | "
        + " | ".join("" if one.get(key) is None else format(one[key], ".2f") for key in _SHOWN)
        + f" | {one['peak_mib']} | {job.goal} |"
        for name, job in JOBS.items()
        if (one := found["jobs"].get(name)) is not None
    ]
    head = [
        "# The first answer\n",
        f"Medians ({found['machine']}): seconds on the clock, and processor seconds of all processes; MiB that they"
        " hold together. Written by `python -m benchmarks.answers.first_answer`; counts are in `counts.md`, exact plans"
        " a second in `evaluation_speed.md`, the explorer's keys in `explorer.json`.\n",
        "| job | pairs | clock | its class | times the class | processor | its class | times the class | peak, MiB "
        "| goal |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join((*head, *rows)) + "\n"


def main() -> None:
    """Measures the jobs that are asked for, all without a word."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(map(repr, JOBS)))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--bare", default=sys.executable, help="an interpreter without torch")
    asked = parser.parse_args()
    path = RESULTS / "first_answer.json"
    found = json.loads(path.read_text()) if path.exists() else {"jobs": {}}
    machine, python = platform.machine(), platform.python_version()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    found["machine"] = f"{machine}, Python {python}, {cores} cores, load {load:.0f}"
    for name in asked.jobs or JOBS:
        found["jobs"][name] = measured(JOBS[name], asked.pairs, asked.bare)
        print(name, found["jobs"][name], flush=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".md").write_text(page(found))


if __name__ == "__main__":
    main()
