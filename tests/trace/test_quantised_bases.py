"""Adapters on quantised bases, and the layers that older libraries ran."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from peft.tuners.lora.awq import AwqLoraLinear
from peft.tuners.lora.gptq import GPTQLoraLinear

from gpu_plan.planner.errors import InputError, NotBuiltError, UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.quantization import Runtime, Scheme, parse_quantize
from gpu_plan.planner.model.quantization.adapters import Lora8bit
from gpu_plan.planner.model.quantization.apply import quantise
from gpu_plan.planner.model.quantization.configs import scheme_of
from gpu_plan.planner.options.training.adapters import adapter_of
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.workload.training import Peft
from tests.accuracy.architectures import ARCHITECTURES

H100 = parse_cluster("1xH100")
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}


def scheme(word: str) -> Scheme:
    found = parse_quantize(word)
    assert found is not None
    return found


def tiny() -> Any:
    return build_model(ARCHITECTURES["llama-3"].config())


@pytest.mark.parametrize(
    ("adapter", "wrapped", "rest"),
    [
        (Adapter(peft=Peft("qlora"), base="int8"), Lora8bit, "float32"),
        (Adapter(peft=Peft("lora"), base="gptq-4bit-32"), GPTQLoraLinear, "bfloat16"),
        (Adapter(peft=Peft("lora"), base="awq-4bit-32"), AwqLoraLinear, "bfloat16"),
    ],
)
def test_peft_wraps_each_base_its_own_way(adapter: Adapter, wrapped: type, rest: str) -> None:
    """prepare_model_for_kbit_training raises what bitsandbytes left in 16 bit to fp32; GPTQ and AWQ stay as loaded."""
    model = tiny()
    made = adapt(model, spec_of(model, model_id="tiny"), adapter)
    found = [module for module in made.model.modules() if isinstance(module, wrapped)]
    assert len(found) == 2 * model.config.num_hidden_layers
    frozen = {p.dtype for p in made.spec.parameters if not p.trainable and p.dtype != "int8"}
    assert frozen == {rest}
    assert {p.dtype for p in made.spec.parameters if p.trainable} == {"float32"}
    assert "stored as" in made.spec.notes[-1]


def test_a_gptq_checkpoint_is_the_base_of_lora() -> None:
    config = {**ARCHITECTURES["llama-3"].config(), "quantization_config": GPTQ}
    model = build_model(config)
    made = adapt(model, spec_of(model, model_id="tiny"), Adapter(peft=Peft("lora")), stored=scheme_of(config))
    assert any(isinstance(module, GPTQLoraLinear) for module in made.model.modules())
    assert not any("full weights" in note for note in made.spec.notes)


def read(peft: str, *settings: str, **words: str) -> Adapter | None:
    return adapter_of(read_given({"peft": peft, **words}, settings), H100)


def test_bases_are_options() -> None:
    assert read("qlora", "quant.base=INT8") == Adapter(peft=Peft("qlora"), base="int8")
    found = read("lora", "quant.base=gptq-8bit-channel")
    assert found is not None
    assert found.base == "gptq-8bit-channel"
    assert Adapter(peft=Peft("qlora"), base="int8").key() != Adapter(peft=Peft("qlora")).key()


@pytest.mark.parametrize(
    ("peft", "settings", "words", "told"),
    [
        ("lora", ("quant.base=int8",), {}, "needs --peft qlora"),
        ("qlora", ("quant.base=gptq-4bit-128",), {}, "needs --peft lora"),
        ("none", ("quant.base=nf4",), {}, "needs --peft"),
        ("qlora", ("quant.base=fp8",), {}, "use nf4"),
        ("qlora", ("quant.base=nf4-dq",), {}, "quant.double=true"),
        ("lora", ("quant.base=gptq-4bit-7",), {}, "groups of 7"),
        ("qlora", ("quant.base=int8", "quant.double=true"), {}, "one scale per row"),
        ("qlora", ("quant.base=int8",), {"strategy": "fsdp"}, "cannot shard"),
    ],
)
def test_contradictions_are_refused_in_one_line(
    peft: str, settings: tuple[str, ...], words: dict[str, str], told: str
) -> None:
    with pytest.raises((UsageError, NotBuiltError), match=r"^[^\n]*$") as caught:
        read(peft, *settings, **words)
    assert told in str(caught.value)


def test_older_libraries_keep_what_the_checkpoint_holds() -> None:
    """AutoGPTQ's exllama layers share one buffer for the largest unpacked weight, in fp16."""
    model = build_model(ARCHITECTURES["llama-3"].config(), dtype=torch.float16)
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    facts = quantise(model, replace(scheme("gptq-4bit-32"), runtime=Runtime.AUTOGPTQ))
    config = model.config
    assert facts.resident_bytes - facts.checkpoint_bytes - buffers == 2 * config.hidden_size * config.intermediate_size
    eight = build_model(ARCHITECTURES["llama-3"].config(), dtype=torch.float16)
    facts = quantise(eight, replace(scheme("gptq-8bit-32"), runtime=Runtime.AUTOGPTQ))
    assert facts.resident_bytes - buffers == facts.checkpoint_bytes
    assert "AutoGPTQ" in facts.kernel


def test_a_model_without_matching_layers_is_no_base() -> None:
    model = build_model(ARCHITECTURES["gpt2"].config())
    with pytest.raises(InputError, match="no layer that awq stores"):
        adapt(model, spec_of(model, model_id="gpt2"), Adapter(peft=Peft("lora"), base="awq-4bit-128"))
