"""The stand-in for bitsandbytes' 4-bit layer: what it stores, what it leaves alone, what a product allocates."""

import pytest
import torch
from torch import nn

from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.linear4bit import Linear4bitMeta, quantise
from gpu_plan.planner.model.quantization.adapters import Lora4bit
from gpu_plan.planner.workload.training import Peft
from tests.accuracy.architectures import ARCHITECTURES


def layer(rows: int, columns: int, *, double_quant: bool, bias: bool = False) -> Linear4bitMeta:
    linear = nn.Linear(columns, rows, bias=bias, device="meta")
    return Linear4bitMeta(linear, double_quant=double_quant, compute_dtype=torch.bfloat16)


def stored(module: nn.Module) -> list[int]:
    tensors = [*module.parameters(), *module.buffers()]
    return sorted(tensor.untyped_storage().nbytes() for tensor in tensors)


@pytest.mark.parametrize("double_quant", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(128, 64), (96, 80), (256, 1024), (33, 31)])
def test_stores_what_bitsandbytes_stores(rows: int, columns: int, double_quant: bool) -> None:
    bnb = pytest.importorskip("bitsandbytes", reason="the reference is the library itself")
    real = bnb.nn.Linear4bit(columns, rows, bias=False, compress_statistics=double_quant, quant_type="nf4").to("cpu")
    state = real.weight.quant_state
    tensors = [real.weight, state.absmax, state.code]
    if double_quant:
        tensors += [state.offset, state.state2.absmax, state.state2.code]
    expected = sorted(tensor.untyped_storage().nbytes() for tensor in tensors)
    assert stored(layer(rows, columns, double_quant=double_quant)) == expected


def test_bits_per_parameter() -> None:
    """Dettmers et al., QLoRA: 4.5 bits with fp32 scales of 64 elements, 4.127 with quantised ones."""
    numel = 4096 * 4096
    assert 8 * sum(stored(layer(4096, 4096, double_quant=False))) / numel == pytest.approx(4.5, abs=1e-3)
    assert 8 * sum(stored(layer(4096, 4096, double_quant=True))) / numel == pytest.approx(4.127, abs=2e-3)


def test_head_embeddings_and_norms_are_left_alone() -> None:
    model = build_model(ARCHITECTURES["llama-3"].config())
    count = quantise(model, double_quant=False, compute_dtype=torch.bfloat16)
    kept = {name.rpartition(".")[0] for name, p in model.named_parameters() if p.dtype is not torch.uint8}
    assert count == 7 * model.config.num_hidden_layers
    assert "lm_head" in kept
    assert not any("_proj" in name for name in kept)


def test_conv1d_is_quantised_as_transformers_does() -> None:
    model = build_model(ARCHITECTURES["gpt2"].config())
    quantise(model, double_quant=False, compute_dtype=torch.bfloat16)
    attention = model.get_submodule("transformer.h.0.attn.c_attn")
    assert isinstance(attention, Linear4bitMeta)
    assert (attention.in_features, attention.out_features) == (64, 192)


def test_counts_are_of_unpacked_elements() -> None:
    model = build_model(ARCHITECTURES["llama-3"].config())
    base = spec_of(model, model_id="tiny")
    adapted = adapt(model, base, Adapter(peft=Peft("qlora"), rank=4))
    assert adapted.spec.adapted == ("q_proj", "v_proj")
    assert adapted.spec.num_parameters - base.num_parameters == adapted.spec.trainable_parameters
    # q: 64 -> 64, v: 64 -> 32, two layers
    assert adapted.spec.trainable_parameters == 2 * 4 * (64 + 64 + 64 + 32)
    wrapped = [module for module in adapted.model.modules() if isinstance(module, Lora4bit)]
    assert len(wrapped) == 2 * model.config.num_hidden_layers


def test_product_gives_gradients_of_the_input_only() -> None:
    product = layer(32, 16, double_quant=True, bias=True)
    x = torch.empty(2, 5, 16, dtype=torch.bfloat16, device="meta", requires_grad=True)
    out = product(x)
    assert out.shape == (2, 5, 32)
    assert out.dtype is torch.bfloat16
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert all(parameter.grad is None for parameter in product.parameters())


def test_experts_in_one_tensor_are_not_quantised_and_that_is_said() -> None:
    model = build_model(ARCHITECTURES["mixtral"].config())
    adapted = adapt(model, spec_of(model, model_id="tiny"), Adapter(peft=Peft("qlora")))
    experts = [p for p in adapted.spec.parameters if "experts" in p.name]
    assert experts
    assert {p.dtype for p in experts} == {"float32"}
    assert "elements, is not packed" in adapted.spec.notes[-1]
