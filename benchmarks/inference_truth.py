"""Estimates of published inference measurements: peak allocated memory of whole generations.

    .venv/bin/python -m benchmarks.inference_truth [--truth FILE] [--only TEXT]

FILE is a JSON list of rows; without it, benchmarks/data/published_inference.json is read, facts copied from public
sources, each named in its row. Writes benchmarks/results/inference_truth.json and .md. Every row is scored or set aside
with the reason; nothing is fitted. No GPU takes part.
"""

import argparse
import json
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.accuracy_table import spread
from benchmarks.inference_cases import InferenceCase, Row, as_it_was, case_of, rotary_bytes
from gpu_plan.planner.units import GIB

HERE = Path(__file__).parent
DATA = HERE / "data" / "published_inference.json"
A100 = (8, 0)
_SM_COUNT = 108

_HEAD = """# Estimates against published inference measurements

Written by `python -m benchmarks.inference_truth`; no GPU takes part. One sample, greedy, 2048 new tokens, on an A100
with FlashAttention 2: `torch.cuda.max_memory_allocated` as printed (two digits of GiB) against the peak of the whole
generation. Error is estimate / measured - 1, figures of a group those of absolute values. What the software of a row
did otherwise is declared in benchmarks/inference_cases.py. One row is unexplained: im-qwen-speed-0108 (3B, AWQ, a
prompt of one token) shows 0.5 GiB more than its siblings with GPTQ, all but as much as with a prompt of 6144 tokens.
"""


def peak_of(case: InferenceCase) -> dict[str, int]:
    """Peak allocated bytes of the whole generation, and of its phases."""
    from gpu_plan.planner.memory.allocator.replay import simulate
    from gpu_plan.planner.memory.profile import measure
    from gpu_plan.planner.search.generation.rank import parameter_bytes
    from gpu_plan.planner.strategy.base import workspace_bytes
    from gpu_plan.planner.strategy.generation.stream import GenerationStream, States
    from gpu_plan.planner.trace.generation.passes import cut
    from gpu_plan.planner.trace.generation.record import prepare_for_generation, record_generation
    from gpu_plan.planner.trace.generation.variant import GenerationVariant
    from gpu_plan.planner.trace.generation.workshop import trace_of
    from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
    from gpu_plan.planner.workload.training import Attention

    model = built(case)
    prepare_for_generation(model)
    profile = CudaProfile(capability=A100, sm_count=_SM_COUNT)

    def traced(prompt: int) -> Any:
        variant = GenerationVariant(prompt=prompt, steps=3, batch=1, dtype="bfloat16", attention=Attention.FLASH)
        with as_it_was(model, case):
            return trace_of(model, record_generation(model, variant, profile))

    begun, full = traced(case.prompt), traced(case.prompt + case.new_tokens - 3)
    states = States(
        weights=tuple((parameter.name, parameter_bytes(parameter)) for parameter in begun.parameters),
        buffers=(*begun.buffer_bytes, *rotary_bytes(model, case)),
        workspace=workspace_bytes(A100),
    )
    stream = GenerationStream(states, (cut(begun, 0, 1), cut(full, 2))).build()
    figures = measure(stream, 1, simulate(stream, 1).block_bytes(len(stream.fixed)))
    return {str(phase): size for phase, size in figures.phase_peaks.items()} | {"peak": figures.peak_allocated_bytes}


def built(case: InferenceCase) -> Any:
    """The row's model on meta."""
    import torch

    from gpu_plan.planner.model.build.construct import build_model
    from gpu_plan.planner.model.quantization import Method, Runtime, Target, parse_quantize
    from gpu_plan.planner.model.source.resolve import resolve

    source = resolve(case.model, read_headers=False)
    dtype = torch.bfloat16
    model = build_model(source.config or {}, attention="flash", dtype=dtype, overrides=dict(case.changes))
    scheme = None if case.quantize is None else parse_quantize(case.quantize)
    if scheme is not None:
        from gpu_plan.planner.model.quantization.apply import quantise

        # The rows' own software: AutoGPTQ 0.7 and AutoAWQ 0.2, whose layers were others than today's.
        older = Runtime.AUTOAWQ if scheme.method is Method.AWQ else Runtime.AUTOGPTQ
        scheme = replace(scheme, runtime=older)
        quantise(model, scheme, target=Target(capability=A100, sm_count=_SM_COUNT), dtype=dtype)
    return model


def line_of(row: Row) -> Row | str:
    """A row's figures, or why it is set aside."""
    case = case_of(row)
    if isinstance(case, str):
        return case
    measured = row["measured"]["peak_allocated_gib"] * GIB
    figures = peak_of(case)
    return {
        "id": row["id"],
        "group": f"{row['group']}, {row['quantization'] or 'bf16'}",
        "model": row["model"],
        "quantization": row["quantization"],
        "prompt": case.prompt,
        "software": str(row["software"]).split(",")[0],
        "measured": round(measured),
        "error": round(figures["peak"] / measured - 1, 4),
    }


def run(rows: list[Row], only: str = "") -> Row:
    """Every row: scored, or counted under the reason why it is not."""
    lines, aside = [], Counter[str]()
    for row in rows:
        if only and only not in f"{row['id']} {row['model']} {row['quantization']}":
            continue
        line = line_of(row)
        if isinstance(line, str):
            aside[f"{row['group']}: {line}"] += 1
        else:
            lines.append(line)
            print(
                f"{line['id']} {line['model']} {line['group']} {line['prompt']}: {line['error']:+.2%}", file=sys.stderr
            )
    return {"groups": summary(lines), "lines": lines, "set_aside": dict(aside)}


def summary(lines: list[Row]) -> list[Row]:
    """Count, median, 95th percentile and worst of each group, and of all."""
    names = list(dict.fromkeys(line["group"] for line in lines))
    chosen = [(name, [line for line in lines if line["group"] == name]) for name in names]
    return [
        {"group": name, **(spread(line["error"] for line in found) or {})} for name, found in [*chosen, ("all", lines)]
    ]


def markdown(found: Row) -> str:
    """The page."""
    parts = [_HEAD, "| group | rows | median | 95th percentile | worst |", "|---|---|---|---|---|"]
    for line in found["groups"]:
        cells = [f"{100 * line[key]:.2f} %" for key in ("median", "p95", "worst")]
        parts.append(f"| {line['group']} | {line['rows']} | {' | '.join(cells)} |")
    parts += [
        "",
        "| row | model | weights | software | prompt | measured GiB | estimate GiB | error |",
        "|" + "---|" * 8,
    ]
    for line in found["lines"]:
        cells = [line["id"], line["model"], line["quantization"] or "bf16", line["software"], f"{line['prompt']}"]
        cells += [
            f"{line['measured'] / GIB:.2f}",
            f"{line['measured'] * (1 + line['error']) / GIB:.2f}",
            f"{100 * line['error']:+.2f} %",
        ]
        parts.append(f"| {' | '.join(cells)} |")
    parts += ["", "## Set aside", "", *(f"- {count} × {why}" for why, count in sorted(found["set_aside"].items()))]
    return "\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Writes both result files; with --only, prints alone."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    parser = argparse.ArgumentParser(prog="benchmarks.inference_truth")
    parser.add_argument("--truth", type=Path, default=DATA)
    parser.add_argument("--only", default="", help="rows whose id, model or quantisation holds this text")
    given = parser.parse_args(arguments)
    found = run(json.loads(given.truth.read_text()), given.only)
    if not given.only:
        (HERE / "results" / "inference_truth.json").write_text(json.dumps(found, indent=1) + "\n")
        (HERE / "results" / "inference_truth.md").write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
