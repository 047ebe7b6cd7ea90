"""Estimates against published measurements of full training of Meta-Llama-3-8B and Mistral-7B.

    .venv/bin/python -m benchmarks.published_runs

reads benchmarks/data/published_single_gpu.json (facts, each with its source) and writes
benchmarks/results/published_runs.json and .md. Every row of the data is either compared or set aside with a reason;
what a run had otherwise than this program's own stack is built as the run had it (benchmarks/published_kernels.py) or
named as a difference. Nothing is fitted.
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import published_kernels as kernels
from benchmarks.published_attention import use_frequencies_per_layer, use_repeated_keys
from benchmarks.published_rows import INSTALLED, Row, Setup, differences, rows, set_aside, setup_of, stock
from gpu_plan.planner.memory.profile import MemoryProfile, measure
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Attention, Optimizer, Stack

RESULTS = Path(__file__).parent / "results"
_A100 = CudaProfile(capability=(8, 0), sm_count=108)
_ALONE = 0.03
"""Rows where the states by themselves come this close say little about anything else."""


def build_as_run(setup: Setup) -> nn.Module:
    """The model on meta with what the run put into it."""
    config = dict(resolve(setup.model).config or {})
    config["vocab_size"] += setup.added_tokens
    model: Any = build_model(config, attention="flash")
    if setup.loss == INSTALLED:
        return _module(model)
    if setup.layer_frequencies:
        use_frequencies_per_layer(model)
    if setup.repeats_keys:
        use_repeated_keys(model)
    kernels.use_reentrant_checkpointing(model)
    if setup.fused_kernels:
        kernels.use_fused_norms(model)
    if setup.loss == "fused-linear":
        kernels.use_fused_linear_loss(model)
    else:
        if setup.fp32_logits:
            kernels.use_fp32_logits(model)
        model.loss_function = kernels.in_place_loss if setup.loss == "in-place" else kernels.shifted_loss
    return _module(model)


def _module(model: Any) -> nn.Module:
    built: nn.Module = model
    return built


def batch_with_mask(model: nn.Module, batch: int, seq_len: int) -> TrainingBatch:
    """The collator of those runs adds a mask of ones."""
    made = training_batch(model, batch=batch, seq_len=seq_len)
    ones = torch.ones(batch, seq_len, dtype=torch.int64)
    return TrainingBatch(
        tensors={**made.tensors, "attention_mask": ones.to("meta")},
        values={**made.values, "attention_mask": ones},
        loss=made.loss,
        notes=made.notes,
    )


@contextlib.contextmanager
def replaced(model: nn.Module, setup: Setup) -> Iterator[None]:
    """Within, the modeling module's functions are those of the run."""
    with contextlib.ExitStack() as stack:
        if setup.fused_kernels:
            stack.enter_context(kernels.fused_rotary(type(model).__module__))
        yield


def trace_of(setup: Setup, micro_batch: int) -> StepTrace:
    """The step as the run made it."""
    model = build_as_run(setup)
    tracer = Tracer(model=model, make_batch=batch_with_mask, profile=_A100, has_sequence=True)
    variant = StepVariant(
        regime=setup.regime,
        checkpointing=setup.checkpointing,
        attention=Attention.FLASH,
        stack=Stack.TRAINER,
        seq_len=setup.seq_len,
    )
    with replaced(model, setup):
        return tracer.trace(variant, micro_batch)


def estimate(setup: Setup, trace: StepTrace, micro_batch: int) -> MemoryProfile:
    """Figures of one rank: transformers' Trainer, AdamW with foreach, clipping on, one micro step."""
    context = RankContext(
        trace=trace,
        precision=setup.precision,
        optimizer=Optimizer("adamw"),
        stack=Stack.TRAINER,
        clipping=True,
        checkpointing=setup.checkpointing,
        accumulation_steps=1,
        world_size=setup.world_size,
        capability=_A100.capability,
        hidden_size=trace.layout.hidden_size,
    )
    return measure(STRATEGIES[setup.strategy].rank(context).stream, micro_batch)


class Estimator:
    """Estimates of many rows; a step is traced once for all micro batches that it holds for."""

    def __init__(self) -> None:
        self._traces: dict[Setup, list[StepTrace]] = {}

    def figures(self, row: Row) -> Row:
        """One line of the table."""
        setup, micro_batch = setup_of(row), int(row["micro_batch_per_gpu"])
        trace = self._trace(setup, micro_batch)
        profile = estimate(setup, trace, micro_batch)
        plain = stock(setup)
        unchanged = estimate(plain, self._trace(plain, micro_batch), micro_batch)
        states = setup.bytes_per_parameter * sum(p.numel for p in trace.parameters) // setup.world_size
        return compare(row, setup, profile, states) | {
            "stock_peak": unchanged.peak_allocated_bytes,
            "stock_phase_of_peak": str(unchanged.phase_of_peak),
        }

    def _trace(self, setup: Setup, micro_batch: int) -> StepTrace:
        known = self._traces.setdefault(setup, [])
        for trace in known:
            if trace.samples[0] <= micro_batch <= trace.samples[-1]:
                return trace
        known.append(trace_of(setup, micro_batch))
        return known[-1]


def compare(row: Row, setup: Setup, profile: MemoryProfile, states: int) -> Row:
    """Both sides in bytes, and the errors; positive means that the estimate is high."""
    peak = int(row["printed"]["mem_peak_torch_mem_alloc_in_bytes"])
    at_rest = int(row["printed"]["mem_torch_mem_alloc_in_bytes"])
    alone = states / peak - 1
    return {
        "id": row["id"],
        "source": row["source"],
        "model": row["model"],
        "strategy": setup.strategy,
        "gpus": f"{row['gpu']['count']}x{row['gpu']['model']}",
        "micro_batch": row["micro_batch_per_gpu"],
        "seq_len": setup.seq_len,
        "weights": setup.regime.weights,
        "autocast": setup.regime.autocast,
        "loss": setup.loss,
        "fused_kernels": setup.fused_kernels,
        "repeats_keys": setup.repeats_keys,
        "measured_peak": peak,
        "predicted_peak": profile.peak_allocated_bytes,
        "peak_error": profile.peak_allocated_bytes / peak - 1,
        "phase_of_peak": str(profile.phase_of_peak),
        "phase_peaks": {str(phase): size for phase, size in profile.phase_peaks.items()},
        "measured_at_rest": at_rest,
        "predicted_at_rest": profile.at_rest_bytes,
        "at_rest_error": profile.at_rest_bytes / at_rest - 1,
        "states": states,
        "states_error": alone,
        "states_suffice": abs(alone) <= _ALONE,
        "measured_above_states": peak - states,
        "predicted_above_states": profile.peak_allocated_bytes - states,
        "differences": differences(row),
    }


def run() -> Row:
    """Every row: compared, or set aside with the reason."""
    estimator = Estimator()
    found: dict[str, list[Row]] = {"beyond_states": [], "states_suffice": [], "set_aside": []}
    for row in rows():
        reason = set_aside(row)
        if reason is None:
            line = estimator.figures(row)
            found["states_suffice" if line["states_suffice"] else "beyond_states"].append(line)
        else:
            found["set_aside"].append({"id": row["id"], "strategy": row["strategy"], "reason": reason})
    return dict(found)


def main() -> int:
    """Writes both result files."""
    from benchmarks.published_report import markdown

    found = run()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "published_runs.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "published_runs.md").write_text(markdown(found))
    print(markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
