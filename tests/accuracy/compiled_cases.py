"""One comparison of a compiled CPU step: torch.compile itself, Dynamo and all, against the planner's replay."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.trace.compile.step import region_names
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile, KernelProfile
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Compilation, Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.accuracy.unseen_architectures import UNSEEN
from tests.support.cpu_reference import Reference, measure, real_inputs, real_twin, training_step
from tests.support.ranks.architectures import SPREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCase:
    """What is run on both sides."""

    architecture: str
    compilation: Compilation
    checkpointing: Checkpointing = Checkpointing.NONE
    weights: str = "float32"
    micro_batch: int = 2
    seq_len: int = 48


def _batch(model: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
    return training_batch(model, batch=micro_batch, seq_len=seq_len)


def _built(case: CompiledCase) -> nn.Module:
    values = {**ARCHITECTURES, **UNSEEN, **SPREAD}[case.architecture].config()
    return build_model(values, attention=Attention.SDPA.value, dtype=getattr(torch, case.weights))


def trace_of(case: CompiledCase, profile: KernelProfile | None = None) -> StepTrace:
    """The planner's trace under the declared CPU profile, or another one."""
    model = _built(case)
    kernels = profile or CpuProfile()
    tracer = Tracer(model=model, make_batch=_batch, profile=kernels, has_sequence=has_sequence(model), fold=False)
    variant = StepVariant(
        regime=Regime(weights=case.weights),
        checkpointing=case.checkpointing,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=case.seq_len,
        compilation=case.compilation,
    )
    return tracer.trace(variant, case.micro_batch)


def reference_of(case: CompiledCase) -> Reference:
    """A real model with random weights, compiled; its second step, under the profiler alone."""
    meta = _built(case)
    model: Any = real_twin(meta, getattr(torch, case.weights), Attention.SDPA.value)
    set_checkpointing(model, case.checkpointing)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    try:
        for name in region_names(model, case.compilation):
            model.get_submodule(name).compile(backend=case.compilation.backend)
        inputs = real_inputs(_batch(meta, case.micro_batch, case.seq_len))
        training_step(model, inputs)()
        model.zero_grad()
        return measure(training_step(model, inputs))
    finally:
        torch.set_num_threads(threads)
        torch._dynamo.reset()
