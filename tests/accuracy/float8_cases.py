"""One comparison of a traced and a real CPU step whose linear layers torchao has converted; products are emulated."""

from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils.ao import convert_model_to_fp8_ao
from torch import nn
from torchao.float8 import Float8LinearConfig

from gpu_plan.planner.model.build.construct import build_model
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
class Float8Case:
    """What is run on both sides."""

    architecture: str
    micro_batch: int = 2
    seq_len: int = 48
    checkpointing: Checkpointing = Checkpointing.NONE
    weights: str = "float32"
    layers: int | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """Config values beside the architecture's own."""
        return {} if self.layers is None else {"num_hidden_layers": self.layers}


def _built(case: Float8Case) -> nn.Module:
    return build_model(ARCHITECTURES[case.architecture].config(**case.changes), dtype=getattr(torch, case.weights))


def _batch(model: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
    return training_batch(model, batch=micro_batch, seq_len=seq_len)


@once(8)
def trace_of(case: Float8Case, *, fold: bool = True, float8: bool = True) -> StepTrace:
    """The planner's trace under the declared CPU profile."""
    tracer = Tracer(
        model=_built(case), make_batch=_batch, profile=CpuProfile(threads=THREADS), has_sequence=True, fold=fold
    )
    variant = StepVariant(
        regime=Regime(weights=case.weights, float8="cast" if float8 else ""),
        checkpointing=case.checkpointing,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=case.seq_len,
    )
    return tracer.trace(variant, case.micro_batch)


@once(8)
def reference_of(case: Float8Case) -> Reference:
    """The same step on a real model that accelerate's own function has converted, under the profiler alone."""
    meta = _built(case)
    model = real_twin(meta, getattr(torch, case.weights), "sdpa")
    convert_model_to_fp8_ao(model, Float8LinearConfig(pad_inner_dim=True, emulate=True))
    set_checkpointing(model, case.checkpointing)
    inputs = real_inputs(_batch(meta, case.micro_batch, case.seq_len))
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        return measure(training_step(model, inputs))
    finally:
        torch.set_num_threads(threads)
