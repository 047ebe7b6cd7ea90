"""One comparison of a traced and a real CPU step of a model with LoRA adapters."""

from dataclasses import dataclass
from typing import Any

import peft
import torch
from torch import nn

from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Peft, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import Reference, measure, real_inputs, real_twin, training_step
from tests.support.once import once

THREADS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraCase:
    """What is run on both sides."""

    architecture: str
    rank: int = 8
    targets: tuple[str, ...] = ()
    dropout: float = 0.0
    micro_batch: int = 2
    seq_len: int = 48
    checkpointing: Checkpointing = Checkpointing.NONE
    weights: str = "float32"
    """dtype of the frozen base; adapters are fp32."""
    layers: int | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """Config values beside the architecture's own."""
        return {} if self.layers is None else {"num_hidden_layers": self.layers}


def _built(case: LoraCase) -> nn.Module:
    return build_model(ARCHITECTURES[case.architecture].config(**case.changes), dtype=getattr(torch, case.weights))


def _batch(model: nn.Module, case: LoraCase) -> TrainingBatch:
    return training_batch(model, batch=case.micro_batch, seq_len=case.seq_len)


@once(8)
def trace_of(case: LoraCase, *, fold: bool = True) -> StepTrace:
    """The planner's trace under the declared CPU profile."""
    base = _built(case)
    adapter = Adapter(peft=Peft("lora"), rank=case.rank, targets=case.targets, dropout=case.dropout)
    adapted = adapt(base, spec_of(base, model_id=case.architecture), adapter)
    tracer = Tracer(
        model=adapted.model,
        make_batch=lambda _, micro_batch, seq_len: training_batch(base, batch=micro_batch, seq_len=seq_len),
        profile=CpuProfile(threads=THREADS),
        has_sequence=has_sequence(base),
        fold=fold,
    )
    variant = StepVariant(
        regime=Regime(weights=case.weights, trainable_weights=None if case.weights == "float32" else "float32"),
        checkpointing=case.checkpointing,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=case.seq_len,
    )
    return tracer.trace(variant, case.micro_batch)


@once(8)
def reference_of(case: LoraCase) -> Reference:
    """The same step on a real model that peft itself has wrapped, under the profiler alone."""
    meta = _built(case)
    twin = real_twin(meta, getattr(torch, case.weights), "sdpa")
    config = peft.LoraConfig(
        r=case.rank,
        lora_dropout=case.dropout,
        target_modules=list(case.targets) or None,
        task_type="CAUSAL_LM" if type(meta).__name__.endswith("ForCausalLM") else None,
    )
    model = peft.get_peft_model(twin, config)
    model.train()
    set_checkpointing(model, case.checkpointing)
    inputs = real_inputs(_batch(meta, case))
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        return measure(training_step(model, inputs))
    finally:
        torch.set_num_threads(threads)
