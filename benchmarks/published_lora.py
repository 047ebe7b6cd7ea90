"""Estimates against published measurements of LoRA training on one GPU.

    .venv/bin/python -m benchmarks.published_lora

reads benchmarks/data/published_lora.json (facts, each with its source) and writes published_lora.json and .md beside
the other results. As in benchmarks/published_runs.py: each row is compared or set aside with a reason, what a run had
otherwise is built as the run had it, and nothing is fitted.
"""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.published_adapters import FsdpBesideAdapters, fuse_adapters
from benchmarks.published_fsdp import with_held_inputs
from benchmarks.published_rows import Row, Setup, differences, setup_of
from benchmarks.published_runs import batch_with_mask, build_as_run, replaced
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import spec_of
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.training import Attention, Optimizer, Peft, Stack

HERE = Path(__file__).parent
_A100 = CudaProfile(capability=(8, 0), sm_count=108)
_ASIDE = {
    "litgpt": "litgpt's own models and adapters, not transformers' and peft's",
    "qwen-readme": "does not say which statistic it reports",
    "ms-swift": "reports reserved memory, of runs whose configuration is implied by defaults",
    "peft": "does not say which statistic it reports, nor rank and targets",
    "torchtune": "torchtune's own models and adapters, not transformers' and peft's",
}


def setup_with_adapters(row: Row) -> Setup:
    """The frozen base as loaded; peft 0.13 makes adapters fp32 (tuners_utils.py: cast_adapter_dtype)."""
    setup = setup_of(row)
    if setup.strategy != "single":
        peft = Peft("qlora") if row["quantization"] else Peft("lora")
        if fuses_adapters(setup, peft):
            return replace(setup, regime=FsdpBesideAdapters().regime(setup.precision, Stack.TRAINER, peft))
        return replace(setup, regime=STRATEGIES[setup.strategy].regime(setup.precision, Stack.TRAINER, peft))
    return replace(setup, regime=replace(setup.regime, trainable_weights="float32"))


def fuses_adapters(setup: Setup, peft: Peft) -> bool:
    """Around a quantised base the plugin's kernels take in the adapters as well."""
    return setup.fused_kernels and peft == Peft("qlora")


def trace_of(setup: Setup, lora: Row, micro_batch: int) -> StepTrace:
    """The step as the run made it, its adapters included."""
    base = build_as_run(setup)
    adapter = adapter_of(setup, lora)
    if adapter.peft == Peft("lora"):
        # trl 0.11 and 0.13 (trainer/sft_trainer.py): with adapters and reentrant checkpointing.
        input_gradients(base)
    model = adapt(base, spec_of(base, model_id=setup.model), adapter).model
    if fuses_adapters(setup, adapter.peft):
        fuse_adapters(model)

    def batch(_: nn.Module, micro: int, seq_len: int) -> TrainingBatch:
        return batch_with_mask(base, micro, seq_len)

    tracer = Tracer(model=model, make_batch=batch, profile=_A100, has_sequence=True)
    variant = StepVariant(
        regime=setup.regime,
        checkpointing=setup.checkpointing,
        attention=Attention.FLASH,
        stack=Stack.TRAINER,
        seq_len=setup.seq_len,
    )
    with replaced(base, setup):
        trace = tracer.trace(variant, micro_batch)
    return trace if setup.strategy == "single" else with_held_inputs(trace)


def adapter_of(setup: Setup, lora: Row) -> Adapter:
    """`quantised`: bitsandbytes' NF4 with quantised scales (fms-acceleration plugins/accelerated-peft/src/
    fms_acceleration_peft/framework_plugin_bnb.py), whose own preparation upcasts nothing."""
    return Adapter(
        peft=Peft("qlora") if lora.get("quantised") else Peft("lora"),
        rank=lora["rank"],
        targets=tuple(lora["targets"]),
        dropout=float(lora.get("dropout") or 0.0),
        double_quant=bool(lora.get("quantised")),
        compute_dtype=setup.precision.compute_dtype,
    )


def input_gradients(model: Any) -> None:
    """The embedding's output requires a gradient, which reentrant checkpointing cannot do without."""
    model.enable_input_require_grads()


def estimate(setup: Setup, trace: StepTrace, micro_batch: int) -> MemoryProfile:
    """Figures of one GPU: transformers' Trainer, AdamW with foreach, clipping on, one micro step."""
    context = RankContext(
        trace=trace,
        precision=setup.precision,
        optimizer=Optimizer("adamw"),
        stack=Stack.TRAINER,
        clipping=True,
        checkpointing=setup.checkpointing,
        accumulation_steps=1,
        world_size=1,
        capability=_A100.capability,
        peft=Peft("lora"),
    )
    return measure(STRATEGIES["single"].rank(context).stream, micro_batch)


def compare(row: Row) -> Row:
    """Both sides in bytes; positive errors mean that the estimate is high."""
    setup, micro_batch = setup_with_adapters(row), int(row["micro_batch_per_gpu"])
    trace = trace_of(setup, row["lora"], micro_batch)
    profile = estimate(setup, trace, micro_batch)
    peak = int(row["printed"]["mem_peak_torch_mem_alloc_in_bytes"])
    at_rest = int(row["printed"]["mem_torch_mem_alloc_in_bytes"])
    states = sum(p.numel * (4 * 5 if p.trainable else 2) for p in trace.parameters)
    return {
        "id": row["id"],
        "source": row["source"],
        "model": row["model"],
        "micro_batch": micro_batch,
        "autocast": setup.regime.autocast,
        "kernels": ("fused norms and rotary, " if setup.fused_kernels else "") + setup.loss,
        "measured_peak": peak,
        "predicted_peak": profile.peak_allocated_bytes,
        "peak_error": profile.peak_allocated_bytes / peak - 1,
        "phase_of_peak": str(profile.phase_of_peak),
        "states": states,
        "above_states_error": (profile.peak_allocated_bytes - states) / (peak - states) - 1,
        "measured_at_rest": at_rest,
        "predicted_at_rest": profile.at_rest_bytes,
        "at_rest_error": profile.at_rest_bytes / at_rest - 1,
        "differences": differences(row),
    }


def run() -> Row:
    """Every row of the data: compared, or set aside with the reason."""
    rows: list[Row] = json.loads((HERE / "data" / "published_lora.json").read_text())["rows"]
    aside = Counter(_ASIDE[row["group"]] for row in rows if row["group"] in _ASIDE)
    return {"compared": [compare(row) for row in rows if row["group"] not in _ASIDE], "set_aside": dict(aside)}


def markdown(found: Row) -> str:
    """The table, the differences that remain, and what was set aside."""
    head = ("row", "model", "micro batch", "autocast", "kernels, loss", "measured", "estimate", "error", "above states",
            "at rest")  # fmt: skip
    lines = [
        "# Estimates against published LoRA runs on one GPU\n",
        "Peak of `torch.cuda.max_memory_allocated` in GiB (2^30 bytes); errors are estimate / measured - 1.",
        "*Above states* is the same error once the frozen base and 20 bytes per trainable parameter are taken off both",
        "sides. Written by `python -m benchmarks.published_lora`; no GPU takes part.\n",
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
    ]
    for row in found["compared"]:
        cells = (
            row["id"], row["model"].rpartition("/")[2], row["micro_batch"], row["autocast"] or "none", row["kernels"],
            f"{row['measured_peak'] / GIB:.4f}", f"{row['predicted_peak'] / GIB:.4f}",
            f"{100 * row['peak_error']:+.3f} %", f"{100 * row['above_states_error']:+.3f} %",
            f"{100 * row['at_rest_error']:+.3f} %",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    told = dict.fromkeys(text for row in found["compared"] for text in row["differences"])
    lines += ["", "Differences that remain:\n", *(f"- {text}" for text in told)]
    lines += ["", "Set aside:\n", *(f"- {reason}: {count} rows" for reason, count in found["set_aside"].items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes both result files."""
    found = run()
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "published_lora.json").write_text(json.dumps(found, indent=1) + "\n")
    (results / "published_lora.md").write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
