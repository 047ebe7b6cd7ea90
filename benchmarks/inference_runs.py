"""Prompts through a model of 125M random weights on this machine, over every way to spread it: real runs by the command
line, against the plan's figures and against the whole model's own words.

    .venv/bin/python -m benchmarks.inference_runs [--only NAME,...]

writes benchmarks/results/inference_runs.json and .md.
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from executor.read_run import read_whole
from executor.run_folder import find
from planner.plan import Candidate, DevicePlacement, Placement
from planner.plan_io import load, save
from planner.plan_saved import SavedPlan
from reports.run_compare import compare_run
from tests.support.inference_runs import execute, infer_plan, make_checkpoint, results

RESULTS = Path(__file__).parent / "results"
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
    """One way to run the prompts. `in_memory`: of the weights, the rest on disk; None: no disk."""

    name: str
    degrees: Mapping[str, int] = field(default_factory=dict)
    in_memory: float | None = None

    @property
    def ranks(self) -> int:
        total = 1
        for degree in self.degrees.values():
            total *= degree
        return total


CASES = (
    Case(name="whole"),
    Case(name="disk 25 %", in_memory=0.75),
    Case(name="disk 50 %", in_memory=0.5),
    Case(name="disk 75 %", in_memory=0.25),
    Case(name="disk 100 %", in_memory=0.0),
    Case(name="tensor 2", degrees={"tensor": 2}),
    Case(name="tensor 4", degrees={"tensor": 4}),
    Case(name="pipeline 2", degrees={"pipeline": 2}),
    Case(name="pipeline 4", degrees={"pipeline": 4}),
    Case(name="replicas 2", degrees={"replicas": 2}),
    Case(name="replicas 4", degrees={"replicas": 4}),
    Case(name="tensor 2 x replicas 2", degrees={"tensor": 2, "replicas": 2}),
)


def planned(folder: Path, checkpoint: Path) -> Candidate:
    """What `plan --task infer` says of the whole model in one process."""
    path = folder / "whole.json"
    words = ["--gpus", "cpu", "--task", "infer", "--context", str(CONTEXT), "--new-tokens", str(NEW)]
    words += ["--batch", str(BATCH), "--strategy", "single", "--save", str(path)]
    command = [str(Path(sys.executable).with_name("plan")), str(checkpoint), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    return load(path).plan


def plan_of(case: Case, checkpoint: Path, whole: Candidate) -> tuple[SavedPlan, int | None]:
    """The plan that is executed, and the bytes that it expects at the peak of one process."""
    figures = whole.inference
    assert figures is not None
    weights = figures.weight_bytes
    beside = max(figures.prefill_peak_bytes, figures.decode_peak_bytes) - weights
    degrees = dict(case.degrees)
    if case.in_memory is None:
        saved = infer_plan(checkpoint, batch=BATCH, new_tokens=NEW, context=CONTEXT, **degrees)
        alone = set(degrees) <= {"replicas"}
        return replace(saved, plan=replace(saved.plan, inference=figures)) if alone else saved, (
            weights + beside if alone else None
        )
    placement, held = spread(checkpoint, int(weights * case.in_memory), beside)
    saved = infer_plan(checkpoint, batch=BATCH, new_tokens=NEW, context=CONTEXT)
    return replace(saved, plan=replace(saved.plan, placement=placement)), held


def spread(checkpoint: Path, budget: int, beside: int) -> tuple[Placement, int]:
    """The planner's own device map for `budget` bytes of weights in memory, and what it makes of the peak."""
    from executor.inference.checkpoint import open_checkpoint
    from executor.inference.job import InferenceJob
    from executor.inference.model import empty_model
    from planner.search.device_map import Device, modules_of, problem_of, solve

    model = empty_model(open_checkpoint(checkpoint), InferenceJob(model=str(checkpoint), dtype="float32", on_cpu=True))
    modules = modules_of(model)
    largest = max(sum(tensor.num_bytes for tensor in module.tensors) for module in modules)
    devices = (
        Device(name="cpu", kind="cpu", free_bytes=budget + largest),
        Device(name="disk", kind="disk", free_bytes=None),
    )
    found = solve(problem_of(modules, devices, no_split=model._no_split_modules, streaming="module"))
    uses = {use.name: use for use in found.devices}
    entries = tuple(
        DevicePlacement(
            device=str(name),
            weight_bytes=use.weight_bytes,
            peak_bytes=use.weight_bytes + use.headroom_bytes + beside if name == "cpu" else None,
        )
        for name, use in uses.items()
    )
    placement = Placement(
        device_map={name: str(place) for name, place in found.device_map.items()},
        devices=entries,
        main_device="cpu",
        optimal=found.optimal,
    )
    cpu = uses["cpu"]
    return placement, cpu.weight_bytes + cpu.headroom_bytes + beside


def run(case: Case, folder: Path, checkpoint: Path, prompts: Path, whole: Candidate) -> Row:
    """One real run by the command line."""
    place = folder / case.name.replace(" ", "-").replace("%", "pc")
    place.mkdir()
    saved, expected = plan_of(case, checkpoint, whole)
    save(saved, place / "plan.json")
    done = execute(place, place / "plan.json", "--prompts", str(prompts), "--output", "out.jsonl", seconds=3600)
    if done.returncode:
        raise SystemExit(f"{case.name}: {done.stderr[-3000:]}")
    record = read_whole(find("latest", place))
    compared = compare_run(record)
    speed = {figure.name: figure.measured for figure in compared.speed}
    peaks = [line.peak_bytes for line in compared.ranks if line.peak_bytes is not None]
    inference = [rank.inference for rank in record.ranks if rank.inference is not None]
    held = {device.device: device.weight_bytes for device in inference[0].devices}
    return {
        "case": case.name,
        "processes": case.ranks,
        "loaded_by": inference[0].loaded_by,
        "weight_bytes": held,
        "expected_peak_bytes": expected,
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
        weights, expected, peak = row["weight_bytes"], row["expected_peak_bytes"], row["peak_bytes"]
        cells = (
            row["case"],
            str(row["processes"]),
            f"{weights.get('cpu', 0) / MIB:.1f}",
            f"{weights.get('disk', 0) / MIB:.1f}",
            f"{peak / MIB:.1f}",
            "-" if expected is None else f"{expected / MIB:.1f}",
            "-" if expected is None else f"{peak / expected:.3f}",
            f"{row['load_seconds']:.2f} s",
            f"{1000 * row['prefill_seconds']:.0f} ms",
            f"{1000 * row['decode_seconds']:.1f} ms",
            f"{row['decode_tokens_per_second']:.1f}",
            row["equal"],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def write(rows: Sequence[Row], whole: Candidate) -> None:
    import accelerate
    import torch
    import transformers

    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": accelerate.__version__,
    }
    figures = whole.inference
    assert figures is not None
    document = {
        "model": SIZES,
        "context": CONTEXT,
        "new_tokens": NEW,
        "batch": BATCH,
        "prompts": PROMPTS,
        "versions": versions,
        "machine": platform.processor() or platform.machine(),
        "planned": {"prefill_seconds": figures.prefill_seconds, "decode_seconds": figures.decode_seconds},
        "rows": rows,
    }
    (RESULTS / "inference_runs.json").write_text(json.dumps(document, indent=1) + "\n")
    text = [
        "# Real runs of prompts",
        "",
        f"A Llama of 125M random fp32 weights (475.6 MiB), {PROMPTS} prompts of {CONTEXT - NEW} tokens, {NEW} new ones"
        f" each, batches of {BATCH} on each replica, on a CPU machine of two cores that others used too: times say what"
        " a way costs against another, not what a GPU does. Memory in MiB, of the fullest process, above what it held"
        " before the first weight was read. `plan` is the planner's figure: for one process the traced generation's,"
        " with weights on disk the map's (weights in RAM, the largest module that is read at once, cache and"
        " activations as traced). Tokens are compared with the whole model's own, each prompt alone.",
        "",
        *table(rows),
        "",
        f"Made by `.venv/bin/python -m benchmarks.inference_runs` with torch {versions['torch']}, transformers"
        f" {versions['transformers']}, accelerate {versions['accelerate']}.",
    ]
    (RESULTS / "inference_runs.md").write_text("\n".join(text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names of cases, separated by commas; nothing is written then")
    args = parser.parse_args()
    chosen = [case for case in CASES if args.only is None or case.name in args.only.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="inference-runs-"))
    try:
        checkpoint = make_checkpoint(folder / "model", shard="100MB", **SIZES)
        prompts = write_full_prompts(folder)
        whole = planned(folder, checkpoint)
        expected = spoken(checkpoint, prompts)
        rows = []
        for case in chosen:
            row = run(case, folder, checkpoint, prompts, whole)
            outputs = row.pop("outputs")
            same = sum(one == other for one, other in zip(outputs, expected, strict=True))
            row["equal"] = f"{same} of {len(expected)}"
            rows.append(row)
            print(json.dumps(row), flush=True)
        if args.only is None:
            write(rows, whole)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
