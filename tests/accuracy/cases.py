"""One comparison of a traced and a real CPU step."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import Reference, measure, real_inputs, real_twin, training_step
from tests.support.once import once

THREADS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is run on both sides."""

    architecture: str
    micro_batch: int = 2
    seq_len: int = 48
    attention: Attention = Attention.SDPA
    checkpointing: Checkpointing = Checkpointing.NONE
    every: int = 1
    weights: str = "float32"
    stack: Stack = Stack.PLAIN
    changes: dict[str, Any] = field(default_factory=dict)
    """Config values beside the architecture's own."""

    def label(self) -> str:
        """Short text that names the case."""
        parts = [self.architecture, f"batch {self.micro_batch}", f"sequence {self.seq_len}", self.attention.value]
        if self.checkpointing is not Checkpointing.NONE:
            parts.append("checkpointing" if self.checkpointing is Checkpointing.FULL else "selective checkpointing")
        if self.every != 1:
            parts.append(f"every {self.every}")
        if self.weights != "float32":
            parts.append(self.weights)
        if self.stack is not Stack.PLAIN:
            parts.append(self.stack.value)
        return ", ".join(parts + [f"{key} {value}" for key, value in self.changes.items()])


def _batch(model: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
    return training_batch(model, batch=micro_batch, seq_len=seq_len)


def _built(case: Case) -> nn.Module:
    return build_model(
        ARCHITECTURES[case.architecture].config(**case.changes),
        attention=case.attention.value,
        dtype=getattr(torch, case.weights),
    )


@once(8)
def trace_of(case: Case, *, fold: bool = True) -> StepTrace:
    """The planner's trace under the declared CPU profile."""
    model = _built(case)
    tracer = Tracer(
        model=model,
        make_batch=_batch,
        profile=CpuProfile(threads=THREADS),
        has_sequence=has_sequence(model),
        fold=fold,
    )
    variant = StepVariant(
        regime=Regime(weights=case.weights),
        checkpointing=case.checkpointing,
        attention=case.attention,
        stack=case.stack,
        seq_len=case.seq_len,
        checkpoint_every=case.every,
    )
    return tracer.trace(variant, case.micro_batch)


@once(8)
def reference_of(case: Case, *, iterations: int = 1, accumulate: bool = False) -> Reference:
    """The same step on a real model with random weights, under the profiler alone."""
    meta = _built(case)
    model = real_twin(meta, getattr(torch, case.weights), case.attention.value)
    set_checkpointing(model, case.checkpointing, case.every, case.stack.traits)
    inputs = real_inputs(_batch(meta, case.micro_batch, case.seq_len))
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        step = training_step(model, inputs, stack=case.stack, iterations=iterations, accumulate=accumulate)
        return measure(step)
    finally:
        torch.set_num_threads(threads)
