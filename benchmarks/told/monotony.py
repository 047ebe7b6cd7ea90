"""More GPUs of one kind, or more of each, never make the first plan slower, and never stop a job from fitting.

python -m benchmarks.told.monotony asks for small models on 1, 2, 4 and 8 of a GPU, and on one and two with a quarter
to three quarters of each kept for others, and writes results/monotony.json and .md. A *fall* is more than what counts
as a tie (`LONGER`) less speed of all GPUs than with less of them or of their memory.
"""

import contextlib
import io
import itertools
import json
from collections.abc import Sequence
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.cli import main as plan
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.search.ranking.rules import LONGER
from gpu_plan.planner.units import MIB

MODELS = (
    ("openai-community/gpt2", "--seq-len", "1024"),
    ("google/vit-base-patch16-224",),
    ("HuggingFaceTB/SmolLM2-135M", "--seq-len", "1024"),
)
COUNTS = (1, 2, 4, 8)
KINDS = ("T4", "A100")
RESERVED = (0.75, 0.5, 0.25, 0.0)
"""Of each T4, kept for others: what is left grows."""


def asked(words: Sequence[str]) -> dict[str, Any] | None:
    """The first plan's speed and what it is; None where nothing fits."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        plan([*words, "--quiet", "--json"])
    document = json.loads(out.getvalue())
    if not document["plans"] or not document["plans"][0]["fits"]:
        return None
    first = document["plans"][0]
    choice = first["strategy"]
    what = f"{choice['name']}, micro batch {choice['micro_batch_size']} x {choice['gradient_accumulation_steps']}"
    return {"plan": what, "samples_per_second": first["speed"]["samples_per_second"]}


def series() -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """Questions in rows, each of which asks for more than the one before it."""
    found = []
    for model, *words in MODELS:
        for kind in KINDS:
            steps = [(f"{count}x{kind}", [model, *words, "--gpus", f"{count}x{kind}"]) for count in COUNTS]
            found.append((f"{model} on {kind}", steps))
        for spec in ("1xT4", "2xT4"):
            size = parse_cluster(spec).capacity_bytes
            steps = [
                (
                    f"{1 - share:.0%} of each",
                    [model, *words, "--gpus", spec, "--set", f"memory.reserve={int(size * share) // MIB}MiB"],
                )
                for share in RESERVED
            ]
            found.append((f"{model} on {spec}", steps))
    return found


def falls(answers: Sequence[dict[str, Any] | None]) -> int:
    """How often more gives less: of speed, beyond a tie, or that it fits no more."""
    count = 0
    for less, more in itertools.pairwise(answers):
        if less is not None:
            count += more is None or more["samples_per_second"] * LONGER < less["samples_per_second"]
    return count


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown."""
    asked_of = sum(len(row["answers"]) for row in rows)
    lines = [
        "# More GPUs, more of each",
        "",
        "Made by `python -m benchmarks.told.monotony`: samples a second of all GPUs by the first plan, and what"
        f" it is. {asked_of} questions, {sum(row['falls'] for row in rows)} falls.",
        "",
        "| series | | falls |",
        "|---|---|---|",
    ]
    for row in rows:
        cells = [
            f"{one['asked']}: " + ("none fits" if one["answer"] is None else _words(one["answer"]))
            for one in row["answers"]
        ]
        lines.append(f"| {row['series']} | {'; '.join(cells)} | {row['falls']} |")
    return "\n".join(lines) + "\n"


def _words(answer: dict[str, Any]) -> str:
    return f"{answer['samples_per_second']:.1f} ({answer['plan']})"


def main() -> None:
    rows = []
    for name, steps in series():
        answers = [asked(question) for _, question in steps]
        told = [{"asked": words, "answer": answer} for (words, _), answer in zip(steps, answers, strict=True)]
        rows.append({"series": name, "answers": told, "falls": (count := falls(answers))})
        print(name, count, flush=True)
        (RESULTS / "monotony.json").write_text(json.dumps(rows, indent=1) + "\n")
        (RESULTS / "monotony.md").write_text(table(rows))


if __name__ == "__main__":
    main()
