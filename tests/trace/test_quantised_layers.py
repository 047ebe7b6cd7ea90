"""Quantised layers on the meta device: their products' work and temporaries, which kernel runs, and refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.catalog_index import find_entry
from gpu_plan.planner.model.quantization import Scheme, Target, parse_quantize
from gpu_plan.planner.model.quantization.apply import quantise
from gpu_plan.planner.model.quantization.layers.base import StoredLinear, packed_mm
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.generation.record import prepare_for_generation, record_generation
from gpu_plan.planner.trace.generation.session import trace_of
from gpu_plan.planner.trace.generation.variant import GenerationVariant
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.workload.training import Attention
from tests.accuracy.architectures import ARCHITECTURES
from tests.support.gguf_writer import write

A100 = Target(capability=(8, 0), sm_count=108)
WORDS = (
    "int8", "nf4-dq", "fp4", "gptq-4bit-32", "gptq-3bit-32", "gptq-2bit-32", "gptq-8bit-channel-act", "awq-4bit-32",
    "fp8", "fp8-tensor", "fp8-channel", "torchao-int4-32", "torchao-int8", "torchao-float8",
)  # fmt: skip


def scheme(word: str) -> Scheme:
    found = parse_quantize(word)
    assert found is not None
    return found


def tiny(architecture: str = "llama-3", **changes: Any) -> Any:
    return build_model(ARCHITECTURES[architecture].config(**changes), dtype=torch.bfloat16)


def generation(model: Any) -> StepTrace:
    prepare_for_generation(model)
    variant = GenerationVariant(prompt=24, steps=2, batch=2, dtype="bfloat16", attention=Attention.SDPA)
    return trace_of(model, record_generation(model, variant, CudaProfile()))


def flops(trace: StepTrace) -> float:
    return float((trace.op_flops_fixed + 2 * trace.op_flops_per_sample).sum())


def test_every_scheme_generates_with_the_same_work() -> None:
    """LLM.int8() alone adds some: the product of the outlier columns."""
    plain = flops(generation(tiny()))
    for word in WORDS:
        model = tiny()
        facts = quantise(model, scheme(word))
        assert facts.layers == 14
        extra = 1.05 if word == "int8" else 1.0
        assert plain <= flops(generation(model)) <= plain * extra, word
        assert facts.kernel
        assert "lm_head" in facts.kept


class Allocations(TorchDispatchMode):
    """Bytes of every fresh meta storage, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._held: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {id(s) for s in self._held}
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and id(tensor.untyped_storage()) not in known:
                storage = tensor.untyped_storage()
                if storage._cdata not in [s._cdata for s in self._held]:
                    self._held.append(storage)
                    self.sizes.append(storage.nbytes())
        return out


def allocated(run: Callable[[], Any], known: list[torch.Tensor]) -> list[int]:
    """Sizes of what `run` allocates on the meta device."""
    with torch.no_grad(), Allocations() as seen:
        seen._held += [tensor.untyped_storage() for tensor in known]
        run()
    return seen.sizes


def layer_of(word: str, rows: int, columns: int, target: Target, **options: Any) -> StoredLinear:
    """One layer of a model, quantised."""
    model = tiny(hidden_size=columns, intermediate_size=rows)
    quantise(model, scheme(word), target=target, **options)
    found = model.model.layers[0].mlp.up_proj
    assert (found.out_features, found.in_features) == (rows, columns)
    made: StoredLinear = found
    return made


def temporaries(word: str, tokens: int, target: Target = A100, **options: Any) -> list[int]:
    layer = layer_of(word, 512, 256, target, **options).eval()
    x = torch.empty(1, tokens, 256, dtype=torch.bfloat16, device="meta")
    return allocated(lambda: layer(x), [x, *layer.parameters(), *layer.buffers()])


def test_a_fused_product_allocates_its_output_and_its_reduction() -> None:
    """gptq_marlin.cu: fp32 for at most 64 rows of 256 columns on every multiprocessor."""
    assert sorted(temporaries("gptq-4bit-32", 100)) == sorted([108 * 64 * 256 * 4, 100 * 512 * 2])
    assert sorted(temporaries("awq-4bit-32", 4)) == sorted([108 * 16 * 256 * 4, 4 * 512 * 2])


def test_activation_order_copies_the_inputs() -> None:
    assert 100 * 256 * 2 in temporaries("gptq-4bit-32-act", 100)


def test_bitsandbytes_small_products_make_no_copy_of_the_weight() -> None:
    weight = 512 * 256 * 2
    assert weight not in temporaries("nf4", 1)
    assert weight in temporaries("nf4", 4096)


def test_int8_products_hold_int32_and_half_results() -> None:
    sizes = temporaries("int8", 100)
    assert {100 * 512 * 4, 100 * 512 * 2, 100 * 256, 100 * 256 * 2} <= set(sizes)


def test_awq_unpacks_the_weight_above_1024_rows_where_marlin_does_not_run() -> None:
    turing = Target(capability=(7, 5), sm_count=40)
    weight = 512 * 256 * 2
    assert weight in temporaries("awq-4bit-32", 1025, turing)
    assert weight not in temporaries("awq-4bit-32", 1024, turing)


def test_awq_adds_its_partial_products_up_in_a_kernel_of_their_own() -> None:
    """AutoAWQ_kernels awq_ext/quantization/gemm_cuda_gen.cu: gemm_forward_cuda ends with _out_feats.sum(0)."""

    def calls(model: Any, operator: str) -> int:
        trace = generation(model)
        return int((trace.op_name == trace.operator_names.index(operator)).sum())

    model = tiny()
    quantise(model, scheme("awq-4bit-32"), target=Target(capability=(7, 5), sm_count=40))
    assert calls(model, "packed_mm") == calls(model, "sum") - calls(tiny(), "sum") > 0


def test_a_gpu_without_float8_gets_full_weights() -> None:
    model = tiny()
    before = {name: parameter.dtype for name, parameter in model.named_parameters()}
    facts = quantise(model, scheme("fp8"), target=A100)
    assert facts.layers == 0
    assert "8.9" in facts.notes[0]
    assert {name: parameter.dtype for name, parameter in model.named_parameters()} == before


REAL = pytest.importorskip("torchao.quantization", reason="the reference is the library itself")


@pytest.mark.parametrize(
    ("word", "config"), [("torchao-int8", "Int8WeightOnlyConfig"), ("torchao-float8", "Float8WeightOnlyConfig")]
)
def test_torchao_products_allocate_what_torchao_allocates(word: str, config: str) -> None:
    """The same Python runs on a CPU; products there may take scratch, so the sizes asked for are looked up in it."""
    real = nn.Linear(256, 512, bias=False, dtype=torch.bfloat16)
    REAL.quantize_(real, getattr(REAL, config)())
    x = torch.randn(1, 100, 256, dtype=torch.bfloat16)
    with torch.no_grad():
        real(x)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            real(x)
    sizes = [size for size in _sizes(profiler) if size > 16]
    mine = temporaries(word, 100)
    assert sorted(size for size in sizes if size in mine) == sorted(mine)


def _sizes(profiler: Any) -> list[int]:
    found: list[int] = []

    def walk(event: Any) -> None:
        if event.tag.name == "Allocation" and event.extra_fields.alloc_size > 0:
            found.append(event.extra_fields.alloc_size)
        for child in event.children:
            walk(child)

    for root in profiler.profiler.kineto_results.experimental_event_tree():
        walk(root)
    return found


def test_gradients_reach_the_input_through_every_trainable_base() -> None:
    for word in ("int8", "gptq-4bit-32", "gptq-3bit-32", "awq-4bit-32", "torchao-int8", "torchao-float8"):
        layer = layer_of(word, 512, 256, A100, training=True)
        x = torch.empty(2, 5, 256, dtype=torch.bfloat16, device="meta", requires_grad=True)
        layer(x).sum().backward()
        assert x.grad is not None, word
        assert x.grad.shape == x.shape


def test_packed_products_count_their_work() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        packed_mm(torch.empty(3, 5, 64, device="meta"), [torch.empty(8, device="meta")], 32, torch.float16)
    assert counter.get_total_flops() == 2 * 3 * 5 * 64 * 32


def test_experts_of_gpt_oss_and_of_mixtures_run() -> None:
    entry = find_entry("openai/gpt-oss-20b")
    assert entry is not None
    config = json.loads(entry.path.read_text())
    config |= {"num_hidden_layers": 2, "layer_types": config["layer_types"][:2]}
    model = build_model(config, dtype=torch.bfloat16)
    facts = quantise(model, scheme("mxfp4"))
    assert facts.layers == 2
    assert flops(generation(model)) > 0
    mixture = tiny("mixtral")
    assert quantise(mixture, scheme("fp8")).layers == 10
    assert flops(generation(mixture)) > 0


@pytest.mark.parametrize(
    ("architecture", "word", "told"),
    [
        ("llama-3", "mxfp4", "none of gpt-oss's experts"),
        ("gpt2", "awq-4bit-128", "no layer that awq stores"),
        ("gpt2", "fp8", "no layer that fp8 stores"),
        ("vit", "gptq-4bit-128", "input is text alone"),
        ("llama-3", "awq-4bit-128", "cannot be stored so"),
        ("llama-3", "torchao-int4-256", "choose another group"),
    ],
)
def test_what_a_model_cannot_have_is_refused_in_one_line(architecture: str, word: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        quantise(tiny(architecture), scheme(word))
    assert "\n" not in str(caught.value)


def test_a_module_that_is_none_of_transformers_is_refused() -> None:
    with pytest.raises(InputError, match="only transformers models"):
        quantise(nn.Linear(3, 3), scheme("int8"))


def gguf_of(model: Any, kind: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Tensors of a file of the model, named as llama.cpp names them."""
    inner = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    found = {}
    for name, parameter in model.named_parameters():
        module = name.removesuffix(".weight")
        parts = module.split(".", 3)
        own = outer.get(module) or f"blk.{parts[2]}.{inner[parts[3]]}"
        found[f"{own}.weight"] = (tuple(parameter.shape), kind if parameter.dim() > 1 else "F32")
    return found


def test_a_gguf_file_stores_its_own_types(tmp_path: Path) -> None:
    model = tiny(hidden_size=256, intermediate_size=512)
    tensors = gguf_of(model, "Q4_K")
    write(tmp_path / "m.gguf", tensors)
    facts = quantise(model, scheme(f"gguf:{tmp_path}/m.gguf"))
    matrices = sum(shape[0] * shape[1] for shape, _ in tensors.values() if len(shape) == 2)
    assert facts.quantised_parameters == matrices
    norms = sum(shape[0] for shape, _ in tensors.values() if len(shape) == 1)
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    assert facts.resident_bytes - buffers == matrices // 256 * 144 + norms * 2
    assert flops(generation(model)) > 0


def test_a_gguf_file_of_another_model_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", gguf_of(tiny(hidden_size=256, intermediate_size=512), "Q8_0"))
    with pytest.raises(InputError, match="of another model"):
        quantise(tiny(hidden_size=128, intermediate_size=512), scheme(f"gguf:{tmp_path}/m.gguf"))
    with pytest.raises(InputError, match="not matched"):
        quantise(tiny("pythia"), scheme(f"gguf:{tmp_path}/m.gguf"))
