"""Prompts through a model of 125M random weights on this machine, over every way to spread it: real runs by the command
line, against the plan's figures and against the whole model's own words.

    .venv/bin/python -m benchmarks.real.inference_runs [--only NAME,...]

writes benchmarks/results/inference_runs.json and .md.
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.places import RESULTS
from gpu_plan.executor.read_run import read_whole
from gpu_plan.executor.run_folder import find
from gpu_plan.planner.plan.codec import plain
from gpu_plan.planner.plan.files import load
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.reports.run.compare import compare_run
from tests.support.inference_runs import execute, make_checkpoint, results

SIZES = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 32_000,
    "max_position_embeddings": 512,
}
CONTEXT, NEW, BATCH, PROMPTS = 128, 16, 4, 12
MIB = 2**20

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to run the prompts, in the command line's words. `in_memory`: share of the weights that RAM has room
    for, beside what else a generation takes; None: all of them."""

    name: str
    words: tuple[str, ...]
    in_memory: float | None = None


PIECES = ("--set", "cache.implementation=static", "--set", "prefill.chunk=64")
"""A prompt of 112 tokens goes in as one piece of 64 and one of 48."""
CASES = (
    Case(name="whole", words=("--gpus", "cpu", "--strategy", "single")),
    Case(name="RAM for 75 %", words=("--gpus", "cpu", "--offload", "all"), in_memory=0.75),
    Case(name="RAM for 50 %", words=("--gpus", "cpu", "--offload", "all"), in_memory=0.5),
    Case(name="RAM for 30 %", words=("--gpus", "cpu", "--offload", "all"), in_memory=0.3),
    Case(name="in pieces", words=("--gpus", "cpu", "--strategy", "single", *PIECES)),
    Case(name="in pieces and RAM for 50 %", words=("--gpus", "cpu", "--offload", "all", *PIECES), in_memory=0.5),
    Case(name="tensor 2", words=("--gpus", "2xcpu", "--tp", "2")),
    Case(name="pipeline 2", words=("--gpus", "2xcpu", "--pp", "2")),
    Case(name="replicas 2", words=("--gpus", "2xcpu", "--strategy", "replicas")),
    Case(name="tensor 2 x replicas 2", words=("--gpus", "4xcpu", "--tp", "2")),
)


def planned(case: Case, folder: Path, checkpoint: Path, whole: SavedPlan | None) -> SavedPlan:
    """What `plan --task infer` chooses. `whole`: the plan of one process with all weights in RAM."""
    path = folder / "plan.json"
    words = ["--task", "infer", "--context", str(CONTEXT), "--new-tokens", str(NEW), *case.words]
    replicas = 2 if "replicas" in case.name else 1
    words += ["--batch", str(BATCH * replicas), "--save", str(path)]
    if case.in_memory is not None:
        assert whole is not None
        figures = whole.plan.inference
        assert figures is not None
        beside = figures.prefill_peak_bytes - figures.weight_bytes
        room = int(figures.weight_bytes * case.in_memory) + 2 * beside
        words += ["--set", f"memory.reserve={int(str(whole.cluster['usable_bytes'])) - room}"]
    command = [str(Path(sys.executable).with_name("plan")), str(checkpoint), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{case.name}: {done.stdout}{done.stderr}")
    return load(path)


def run(case: Case, folder: Path, checkpoint: Path, prompts: Path, whole: SavedPlan | None) -> tuple[SavedPlan, Row]:
    """One real run by the command line: its plan and its figures."""
    place = folder / case.name.replace(" ", "-").replace("%", "pc")
    place.mkdir()
    saved = planned(case, place, checkpoint, whole)
    done = execute(place, place / "plan.json", "--prompts", str(prompts), "--output", "out.jsonl", seconds=3600)
    if done.returncode:
        raise SystemExit(f"{case.name}: {done.stderr[-3000:]}")
    record = read_whole(find("latest", place))
    compared = compare_run(record)
    speed = {figure.name: figure.measured for figure in compared.speed}
    peaks = [line.peak_bytes for line in compared.ranks if line.peak_bytes is not None]
    inference = [rank.inference for rank in record.ranks if rank.inference is not None]
    figures = saved.plan.inference
    assert figures is not None
    return saved, {
        "case": case.name,
        "strategy": saved.plan.strategy.name,
        "processes": saved.plan.strategy.world_size,
        "loaded_by": inference[0].loaded_by,
        "memory": [plain(figure) for figure in compared.memory],
        "expected_peak_bytes": max(figures.load_peak_bytes, figures.prefill_peak_bytes, figures.decode_peak_bytes),
        "peak_bytes": max(peaks),
        "peak_bytes_by_rank": peaks,
        "load_seconds": speed.get("load"),
        "prefill_seconds": speed.get("prefill of a batch"),
        "decode_seconds": speed.get("decode step"),
        "decode_tokens_per_second": speed.get("decode tokens/s"),
        "left_behind": sorted(
            path.name for path in place.iterdir() if path.name not in ("plan.json", "runs", "out.jsonl")
        ),
        "outputs": [line["output_ids"] for line in results(place / "out.jsonl")],
    }


def spoken(checkpoint: Path, prompts: Path) -> list[list[int]]:
    """The whole model, each prompt alone, by transformers itself."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)  # as the runs have it: other threads would wait for each other on a busy machine
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    found = []
    for line in prompts.read_text().splitlines():
        ids = torch.tensor([json.loads(line)["input_ids"]])
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, pad_token_id=0
            )
        found.append(out[0, ids.shape[1] :].tolist())
    return found


def write_full_prompts(folder: Path) -> Path:
    """Prompts as long as the plan's context has room for."""
    import random

    chance = random.Random(5)
    length = CONTEXT - NEW
    lines = [{"input_ids": [chance.randrange(1, SIZES["vocab_size"]) for _ in range(length)]} for _ in range(PROMPTS)]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def table(rows: Sequence[Row]) -> list[str]:
    head = ("run", "processes", "in RAM", "on disk", "peak", "plan", "peak/plan", "load", "prefill", "decode step")
    head += ("tokens/s", "tokens equal")
    lines = ["| " + " | ".join(head) + " |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    for row in rows:
        expected, peak = row["expected_peak_bytes"], row["peak_bytes"]
        weights = {figure["name"]: figure["measured"] for figure in row["memory"]}
        cells = (
            row["case"],
            str(row["processes"]),
            f"{weights.get('cpu weights', 0) / MIB:.1f}",
            f"{weights.get('disk weights', 0) / MIB:.1f}",
            f"{peak / MIB:.1f}",
            f"{expected / MIB:.1f}",
            f"{peak / expected:.3f}",
            f"{row['load_seconds']:.2f} s",
            f"{1000 * row['prefill_seconds']:.0f} ms",
            f"{1000 * row['decode_seconds']:.1f} ms",
            f"{row['decode_tokens_per_second']:.1f}",
            row["equal"],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def write(rows: Sequence[Row]) -> None:
    import accelerate
    import torch
    import transformers

    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": accelerate.__version__,
    }
    document = {
        "model": SIZES,
        "context": CONTEXT,
        "new_tokens": NEW,
        "batch": BATCH,
        "prompts": PROMPTS,
        "versions": versions,
        "machine": platform.processor() or platform.machine(),
        "rows": rows,
    }
    (RESULTS / "inference_runs.json").write_text(json.dumps(document, indent=1) + "\n")
    text = [
        "# Real runs of prompts",
        "",
        f"A Llama of 125M random fp32 weights (475.6 MiB), {PROMPTS} prompts of {CONTEXT - NEW} tokens, {NEW} new ones"
        f" each, batches of {BATCH} on each replica, on a CPU machine of two cores that others used too: times say what"
        " a way costs against another, not what a GPU does. Memory in MiB, of the fullest process, above what it held"
        " before the first weight was read. `plan` is what `plan --task infer` says of the worst device."
        " Tokens are compared with the whole model's own, each prompt alone.",
        "",
        *table(rows),
        "",
        "Where RAM has room for 30 %, embedding and head are read from disk for every token: accelerate's"
        " `load_offloaded_weight` maps the file and copies it (`torch.tensor` of a `numpy.memmap`), so 93.8 MiB stand"
        " twice for a moment, as mapped pages and as a tensor. The plan counts them once. The mapped pages are"
        " clean: the kernel takes them back when memory is short.",
        "",
        f"Made by `.venv/bin/python -m benchmarks.real.inference_runs` with torch {versions['torch']}, transformers"
        f" {versions['transformers']}, accelerate {versions['accelerate']}.",
    ]
    (RESULTS / "inference_runs.md").write_text("\n".join(text) + "\n")


def merged(rows: Sequence[Row]) -> list[Row]:
    """The rows that were there, with those that were run again in their places."""
    path = RESULTS / "inference_runs.json"
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {row["case"]: row for row in (*before, *rows)}
    return [known[case.name] for case in CASES if case.name in known]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names of cases, separated by commas: only these are run again")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="inference-runs-"))
    try:
        checkpoint = make_checkpoint(folder / "model", shard="100MB", **SIZES)
        prompts = write_full_prompts(folder)
        expected = spoken(checkpoint, prompts)
        rows, whole = [], None
        for case in CASES:
            if args.only is None or case.name in args.only.split(",") or case.name == "whole":
                saved, row = run(case, folder, checkpoint, prompts, whole)
                whole = whole or saved
                same = sum(one == other for one, other in zip(row.pop("outputs"), expected, strict=True))
                row["equal"] = f"{same} of {len(expected)}"
                rows.append(row)
                print(json.dumps(row), flush=True)
                write(merged(rows))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
