"""Processor seconds of each kind of question, with an empty cache and again.

python -m benchmarks.answers.question_seconds writes benchmarks/results/question_seconds.json and .md after each
question (three minutes). Seconds of the processor, of the command and all its processes: they hardly depend on what
else the machine does. *Cold* begins with an empty cache, *warm* asks the same again, which is answered from what was
kept.
"""

import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.places import RESULTS

QUESTIONS = {
    "a training step on one GPU": "openai-community/gpt2 --gpus 1xT4",
    "a search on eight GPUs, from a shipped trace": "meta-llama/Llama-3.1-8B --gpus 8xH100",
    "adapters that must be traced": "meta-llama/Llama-3.1-8B --gpus 1x4090 --peft qlora --seq-len 2048",
    "every alternative": "openai-community/gpt2 --gpus 1xT4 --alternatives",
    "the largest batch": "openai-community/gpt2 --gpus 1xT4 --max micro-batch",
    "the cheapest of three machines": "openai-community/gpt2 --machines 1xT4,1x4090,8xH100 --tokens 1B --prefer cost",
    "a generation on one GPU": "meta-llama/Llama-3.1-8B --gpus 1xH100 --task infer",
    "a generation in FP8 on two GPUs": "Qwen/Qwen3-32B-FP8 --gpus 2x4090 --task infer --tp 2",
    "what does not fit": "google/gemma-2-2b --gpus 2xT4",
}


def seconds(words: str, cache: str) -> float:
    """Of the processor, for one question."""
    command = [sys.executable, "-m", "gpu_plan", *shlex.split(words), "--quiet"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, env={**os.environ, "GPU_PLAN_CACHE": cache})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{words}: {done.stderr.decode()[-500:]}")
    return round(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, 1)


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "# Seconds of each question",
        "",
        f"Made by `python -m benchmarks.answers.question_seconds` on {platform.machine()}, {os.cpu_count()} cores:"
        " processor seconds of the command and its processes, with an empty cache and asked again.",
        "",
        "| question | `plan ...` | cold | warm |",
        "|---|---|---|---|",
    ]
    lines += [f"| {row['question']} | `{row['words']}` | {row['cold']} | {row['warm']} |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    rows: list[dict[str, Any]] = []
    for question, words in QUESTIONS.items():
        with tempfile.TemporaryDirectory(prefix="plan-seconds-") as cache:
            cold = seconds(words, cache)
            rows.append({"question": question, "words": words, "cold": cold, "warm": seconds(words, cache)})
        print(rows[-1], flush=True)
        (RESULTS / "question_seconds.json").write_text(json.dumps(rows, indent=1) + "\n")
        (RESULTS / "question_seconds.md").write_text(table(rows))


if __name__ == "__main__":
    main()
