"""Traced bytes of LoRA on an int8 base against the CPU allocator's own events, under bitsandbytes' and peft's layers.

In fp32 throughout, as prepare_model_for_kbit_training leaves everything that is not quantised.
"""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from gpu_plan.planner.model.adapt import KBIT, adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.model.quantization import Target
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Peft, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import Reference, measure, real_inputs, real_twin, training_step
from tests.support.replay_cpu import measured, replayed, same_stream

bnb = pytest.importorskip("bitsandbytes", reason="the reference is the library itself")
peft = pytest.importorskip("peft")

TARGETS = ("q_proj", "v_proj", "down_proj")
BATCH, SEQ_LEN = 2, 48


def built(architecture: str) -> nn.Module:
    return build_model(ARCHITECTURES[architecture].config(hidden_size=256, intermediate_size=512))


def trace_of(architecture: str, checkpointing: Checkpointing) -> StepTrace:
    base = built(architecture)
    adapter = Adapter(peft=Peft("qlora"), rank=4, targets=TARGETS, base="int8", compute_dtype="float32")
    tracer = Tracer(
        model=adapt(base, spec_of(base, model_id="tiny"), adapter, target=Target(capability=None)).model,
        make_batch=lambda _, batch, seq_len: training_batch(base, batch=batch, seq_len=seq_len),
        profile=CpuProfile(threads=1),
        has_sequence=has_sequence(base),
        fold=False,
    )
    variant = StepVariant(
        regime=Regime(weights="float32"),
        checkpointing=checkpointing,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=SEQ_LEN,
    )
    return tracer.trace(variant, BATCH)


def real_model(architecture: str) -> Any:
    """What a user makes: transformers' own replacement, bitsandbytes' layers, peft's preparation and wrapping."""
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert

    model: Any = real_twin(built(architecture), torch.float32, "sdpa")
    weights = {name: module.weight.data for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    biases = {name: m.bias.data for name, m in model.named_modules() if isinstance(m, nn.Linear) and m.bias is not None}
    replace_with_bnb_linear(model, get_keys_to_not_convert(model), BitsAndBytesConfig(load_in_8bit=True))
    for name, module in model.named_modules():
        if isinstance(module, bnb.nn.Linear8bitLt):
            module.weight = bnb.nn.Int8Params(weights[name], requires_grad=False, has_fp16_weights=False).to("cpu")
            if name in biases:
                module.bias = nn.Parameter(biases[name], requires_grad=False)
    model.is_loaded_in_8bit = True
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=list(TARGETS), task_type="CAUSAL_LM"))


def reference_of(architecture: str, checkpointing: Checkpointing) -> Reference:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = real_model(architecture)
    model.train()
    setattr(model, KBIT, True)
    set_checkpointing(model, checkpointing)
    inputs = real_inputs(training_batch(built(architecture), batch=BATCH, seq_len=SEQ_LEN))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return measure(training_step(model, inputs))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("architecture", "checkpointing"),
    [("llama-3", Checkpointing.NONE), ("llama-3", Checkpointing.FULL), ("qwen2", Checkpointing.NONE)],
)
def test_every_allocation_and_free_in_order(architecture: str, checkpointing: Checkpointing) -> None:
    trace, reference = trace_of(architecture, checkpointing), reference_of(architecture, checkpointing)
    assert replayed(trace, BATCH) == measured(reference)
    assert same_stream(trace, BATCH, reference)
