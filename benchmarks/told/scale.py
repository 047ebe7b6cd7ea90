"""How speeds hold up over nodes: plans of two models over many, and InternEvo's published runs beside what is told.

    .venv/bin/python -m benchmarks.told.scale [--truth FILE]

FILE: a list of published runs with InternEvo's over 1 to 128 nodes; without it benchmarks/data/published_speed.json,
which has those of 4 and 128. Writes benchmarks/results/scale.md.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy.models import Models
from benchmarks.accuracy.row import SetAside, software_group, text, whole
from benchmarks.accuracy.speed.estimate import SpeedLines
from benchmarks.accuracy.truth import Kind, read_truth
from benchmarks.places import DATA, RESULTS

JOBS = (
    ("meta-llama/Llama-3.1-8B", ("--micro-batch", "1", "--seq-len", "4096"), (1, 4, 16, 64, 128, 256, 512)),
    (
        "meta-llama/Llama-3.1-405B",
        ("--micro-batch", "1", "--seq-len", "8192", "--checkpointing", "full"),
        (16, 64, 256, 1024, 2048),
    ),
)
_STRATEGIES = ("fsdp", "hsdp")
_HEAD = """# Speed over nodes

Written by `python -m benchmarks.told.scale`. 8 H100 a node, InfiniBand of 8 x 50 GB/s; one micro batch a step, so
that every unit's transfers have one forward or backward to hide behind. MFU, and tokens a second and GPU over those
of the fewest nodes.
"""


def speed(model: str, nodes: int, strategy: str, options: tuple[str, ...]) -> dict[str, Any] | None:
    """The `speed` of one pinned plan, fitting or not; None where it makes no sense."""
    gpus = f"{nodes}x8xH100" if nodes > 1 else "8xH100"
    words = [model, "--gpus", gpus, "--pin", "--strategy", strategy, *options, "--json"]
    done = subprocess.run([sys.executable, "-m", "gpu_plan", *words], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return None
    document = json.loads(done.stdout)
    plan = (document["plans"] or document["rejected"])[0]
    return {**plan["speed"], "fits": plan["verdict"]}


def over_nodes() -> Iterator[str]:
    """Tables of both models."""
    for model, options, nodes in JOBS:
        yield f"## {model}, {' '.join(options)}\n"
        yield (
            "| nodes | " + " | ".join(f"{name}: MFU | efficiency | step, s | waited, s" for name in _STRATEGIES) + " |"
        )
        yield "|---" * (1 + 4 * len(_STRATEGIES)) + "|"
        first: dict[str, float] = {}
        for count in nodes:
            cells = []
            for name in _STRATEGIES:
                found = speed(model, count, name, options)
                if found is None:
                    cells += ["", "", "", ""]
                    continue
                rate = found["tokens_per_second_per_gpu"]
                waited = found["parts"]["exposed_communication"]
                share = rate / first.setdefault(name, rate)
                fits = "" if found["fits"] == "fits" else f" ({found['fits']})"
                cells += [f"{found['mfu']:.1%}{fits}", f"{share:.0%}", f"{found['step_seconds']:.2f}", f"{waited:.2f}"]
            yield f"| {count} | {' | '.join(cells)} |"
            print(count, cells, file=sys.stderr, flush=True)
        yield ""


def published(truth: Path) -> Iterator[str]:
    """InternEvo's runs by configuration and nodes."""
    lines = SpeedLines(Models())
    runs: dict[tuple[str, ...], dict[int, tuple[float, float]]] = defaultdict(dict)
    for row in read_truth(truth, Kind.SPEED).rows:
        if software_group(row) != "internevo":
            continue
        try:
            line = lines.line(row)
        except SetAside:
            continue
        kind = (text(row, "strategy"), f"{line['micro_batch']} x {line['accumulation_steps']}", line["checkpointing"])
        runs[kind][whole(row, "gpu.nodes") or 1] = (line["measured"], line["predicted"])
    yield "## InternLM-7B on A100, InternEvo, 4 x 100 Gb/s a node\n"
    yield "Seconds of a step, and tokens a second over those of the fewest nodes.\n"
    yield "| configuration | nodes | published, s | told, s | ratio | published | told |\n|---|---|---|---|---|---|---|"
    for kind, by_nodes in sorted(runs.items()):
        fewest = by_nodes[min(by_nodes)]
        for nodes, (ran, told) in sorted(by_nodes.items()):
            shares = f"{fewest[0] / ran:.0%} | {fewest[1] / told:.0%}"
            yield f"| {', '.join(kind)} | {nodes} | {ran:.2f} | {told:.2f} | {told / ran:.2f} | {shares} |"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.told.scale", allow_abbrev=False)
    parser.add_argument(
        "--truth", type=Path, default=DATA / "published_speed.json", metavar="FILE", help="published runs"
    )
    truth = parser.parse_args(arguments).truth
    text = "\n".join([_HEAD, *published(truth), "", *over_nodes()])
    (RESULTS / "scale.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
