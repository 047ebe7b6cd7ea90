"""The first answer beside importing its class, and whole spaces, by one command.

    .venv/bin/python -m benchmarks.answers.first_answer [--bare PYTHON] [--pairs 5] [JOB ...]

Processor seconds (user and system) of whole processes, each with an empty home, in turns: first the class, then the
plan. `--bare` is an interpreter with this package's base dependencies alone, for jobs that shipped traces answer; the
class is imported by the one that runs this. A job whose traces are kept is run twice, and the second one counted.
Counts that no machine changes are `benchmarks.answers.counts`, exact plans a second
`benchmarks.answers.evaluation_speed`, the explorer's keys `benchmarks.explorer.keys`. Jobs that are not asked for
keep their figures. Writes benchmarks/results/first_answer.json and .md.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.places import RESULTS

_PLAN = "import sys; sys.argv[0] = 'plan'; from gpu_plan.cli import entry; entry()"
_MIB = 1024**2


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
        goal="0.25 of the class",
        imports="LlamaForCausalLM",
        shipped=True,
    ),
    "an 8B at 8,192 tokens": Job(
        words=("meta-llama/Llama-3.1-8B", "--gpus", "8xH100", "--seq-len", "8192"),
        goal="1.3 times the class",
        imports="LlamaForCausalLM",
    ),
    "DeepSeek-V3": Job(
        words=("deepseek-ai/DeepSeek-V3", "--gpus", "4x8xH200"),
        goal="twice the class",
        imports="DeepseekV3ForCausalLM",
    ),
    "a 405B on 16,384 GPUs": Job(
        words=("meta-llama/Llama-3.1-405B", "--gpus", "2048x8xH100"), goal="5 s, 1 GiB", kept=True
    ),
}


def processor_seconds(command: list[str], home: str) -> tuple[float, float]:
    """User and system seconds of a process, and the most memory that it held, in MiB.

    CalledProcessError where it ends in an error; that nothing fits is an answer.
    """
    left_out = ("PYTHONDONTWRITEBYTECODE", "GPU_PLAN_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / _MIB


def measured(job: Job, pairs: int, bare: str) -> dict[str, Any]:
    """Medians of one job's pairs."""
    python = bare if job.shipped else sys.executable
    answers, classes, most = [], [], 0.0
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as home:
            if job.imports:
                imported = f"from transformers import {job.imports}"
                classes.append(processor_seconds([sys.executable, "-c", imported], home)[0])
            command = [python, "-c", _PLAN, *job.words]
            if job.kept:
                processor_seconds(command, home)
                shutil.rmtree(Path(home) / "cache" / "gpu-plan" / "plans")
            seconds, held = processor_seconds(command, home)
        answers.append(seconds)
        most = max(most, held)
    ratios = [answer / held for answer, held in zip(answers, classes, strict=True)] if classes else []
    return {
        "pairs": pairs,
        "seconds": round(median(answers), 2),
        "class_seconds": round(median(classes), 2) if classes else None,
        "ratio": round(median(ratios), 2) if ratios else None,
        "peak_mib": round(most),
    }


def page(found: dict[str, Any]) -> str:
    """The figures as a page."""
    rows = [
        f"| {name}: `plan {' '.join(job.words)}` | {one['pairs']} | {one['seconds']:.2f} | "
        f"{'' if one['class_seconds'] is None else format(one['class_seconds'], '.2f')} | "
        f"{'' if one['ratio'] is None else format(one['ratio'], '.2f')} | {one['peak_mib']} | {job.goal} |"
        for name, job in JOBS.items()
        if (one := found["jobs"].get(name)) is not None
    ]
    head = [
        "# The first answer\n",
        f"Processor seconds, medians ({found['machine']}). Written by `python -m benchmarks.answers.first_answer`;"
        " counts are in `counts.md`, exact plans a second in `evaluation_speed.md`, the explorer's keys in"
        " `explorer.json`.\n",
        "| job | pairs | seconds | its class | times the class | peak, MiB | goal |",
        "|---|---|---|---|---|---|---|",
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
    found["machine"] = f"{platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.0f}"
    for name in asked.jobs or JOBS:
        found["jobs"][name] = measured(JOBS[name], asked.pairs, asked.bare)
        print(name, found["jobs"][name], flush=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".md").write_text(page(found))


if __name__ == "__main__":
    main()
