"""Traced bytes of QLoRA steps against the CPU allocator's own events, under bitsandbytes' and peft's own layers.

In fp32 throughout: oneDNN's bf16 products take scratch on a CPU that a GPU has not.
"""

import contextlib
import warnings
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from gpu_plan.planner.model.adapt import KBIT, adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.setup.checkpointing import set_checkpointing
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Peft, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.cpu_reference import Reference, measure, real_inputs, real_twin, training_step
from tests.support.replay_cpu import Figures, measured, replayed, same_stream
from tests.support.sample import sample

bnb = pytest.importorskip("bitsandbytes", reason="the reference is the library itself")
peft = pytest.importorskip("peft")

TARGETS = ("q_proj", "v_proj", "down_proj")
BATCH, SEQ_LEN = 2, 48


def built() -> nn.Module:
    return build_model(ARCHITECTURES["llama-3"].config(hidden_size=256, intermediate_size=512))


def trace_of(double_quant: bool, checkpointing: Checkpointing) -> StepTrace:
    base = built()
    adapter = Adapter(peft=Peft("qlora"), rank=4, targets=TARGETS, double_quant=double_quant, compute_dtype="float32")
    tracer = Tracer(
        model=adapt(base, spec_of(base, model_id="tiny"), adapter).model,
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


def real_model(double_quant: bool, loaded: torch.dtype = torch.float32, targets: tuple[str, ...] = TARGETS) -> Any:
    """What a user makes: transformers' own replacement, bitsandbytes' layers, peft's preparation and wrapping."""
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert

    model: Any = real_twin(built(), loaded, "sdpa")
    weights = {name: module.weight.data for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=loaded,
        bnb_4bit_use_double_quant=double_quant,
    )
    replace_with_bnb_linear(model, get_keys_to_not_convert(model), config)
    for name, module in model.named_modules():
        if isinstance(module, bnb.nn.Linear4bit):
            module.weight = bnb.nn.Params4bit(
                weights[name], requires_grad=False, compress_statistics=double_quant, quant_type="nf4", module=module
            ).to("cpu")
    model.is_loaded_in_4bit = True
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=list(targets), task_type="CAUSAL_LM"))


def reference_of(double_quant: bool, checkpointing: Checkpointing) -> Reference:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = real_model(double_quant)
    model.train()
    setattr(model, KBIT, True)
    set_checkpointing(model, checkpointing)
    inputs = real_inputs(training_batch(built(), batch=BATCH, seq_len=SEQ_LEN))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return measure(training_step(model, inputs))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("double_quant", [False, True])
@pytest.mark.parametrize("checkpointing", sample(Checkpointing, kept=[Checkpointing.NONE]))
def test_every_allocation_and_free_in_order(double_quant: bool, checkpointing: Checkpointing) -> None:
    trace, reference = trace_of(double_quant, checkpointing), reference_of(double_quant, checkpointing)
    assert replayed(trace, BATCH) == measured(reference)
    assert same_stream(trace, BATCH, reference)


def _mixed(kinds: tuple[str, ...], *, as_on_cuda: bool) -> tuple[Figures, Figures]:
    """Planned and real, in bf16 by autocast, adapters around `kinds`."""
    base = built()
    adapter = Adapter(peft=Peft("qlora"), rank=4, targets=kinds, double_quant=False, compute_dtype="bfloat16")
    tracer = Tracer(
        model=adapt(base, spec_of(base, model_id="tiny"), adapter).model,
        make_batch=lambda _, batch, seq_len: training_batch(base, batch=batch, seq_len=seq_len),
        profile=CpuProfile(threads=1),
        has_sequence=True,
        fold=False,
    )
    variant = StepVariant(
        regime=Regime(weights="float32", autocast="bfloat16"),
        checkpointing=Checkpointing.NONE,
        attention=Attention.SDPA,
        stack=Stack.PLAIN,
        seq_len=SEQ_LEN,
    )
    model = real_model(False, loaded=torch.bfloat16, targets=kinds).train()
    forward = model.forward

    told = mock.patch.object(torch, "is_autocast_enabled", return_value=True)
    asked: Any = told if as_on_cuda else contextlib.nullcontext()

    def mixed(**inputs: Any) -> Any:
        # autocast leaves on what it is told was on before: it must not be told so itself
        with torch.autocast("cpu", torch.bfloat16), asked:
            return forward(**inputs)

    model.forward = mixed
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        reference = measure(training_step(model, real_inputs(training_batch(base, batch=BATCH, seq_len=SEQ_LEN))))
    finally:
        torch.set_num_threads(threads)
    return replayed(tracer.trace(variant, BATCH), BATCH), measured(reference)


def test_mixed_precision_equals_once_peft_hears_of_autocast() -> None:
    """peft tuners/lora/bnb.py: Linear4bit.forward asks CUDA's autocast alone: on a CPU it casts the 16-bit output of
    attention to the adapters' fp32, and autograd keeps one copy a layer more, that of the product's own cast."""
    kinds = ("q_proj", "o_proj", "down_proj")
    ours, real = _mixed(kinds, as_on_cuda=True)
    assert ours == real
    ours, real = _mixed(kinds, as_on_cuda=False)
    copies = ARCHITECTURES["llama-3"].config()["num_hidden_layers"] * BATCH * SEQ_LEN * 256 * 2
    assert real.forward_end - ours.forward_end == copies
    assert not torch.is_autocast_enabled("cpu")
