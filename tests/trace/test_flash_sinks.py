"""Attention sinks: `--attention flash` of gpt-oss and its like runs transformers' integration with their own kernel."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig, GptOssForCausalLM
from transformers.integrations import hub_kernels

from gpu_plan.cli import main
from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.flash import flash_allowed, hub_answered, third
from gpu_plan.planner.model.catalog_index import CATALOG
from gpu_plan.planner.model.kernels import sinks
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import training_batch
from gpu_plan.planner.trace.kernels.attention import attention_scratch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.recording.operators.work import operator_flops
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Attention, Checkpointing, Precision, Stack

SEQ = 96
TINY = {
    "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "pad_token_id": 0, "eos_token_id": 1,
    "num_local_experts": 4, "num_experts_per_tok": 2,
    "sliding_window": 32, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip


def config() -> dict[str, Any]:
    values = json.loads((CATALOG / "openai--gpt-oss-20b.json").read_text())
    values.pop("quantization_config")
    return {**values, **TINY}


def trace(attention: str, *, frozen: bool = True, capability: tuple[int, int] = (9, 0)) -> StepTrace:
    model = build_model(config(), attention=attention)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (frozen and name.endswith("sinks")))
    variant = StepVariant(
        regime=Single().regime(Precision("bf16"), Stack.TRAINER),
        checkpointing=Checkpointing.NONE,
        attention=Attention(attention),
        stack=Stack.TRAINER,
        seq_len=SEQ,
    )
    tracer = Tracer(
        model=model,
        make_batch=lambda model, batch, seq_len: training_batch(model, batch=batch, seq_len=seq_len),
        profile=CudaProfile(capability=capability, sm_count=132),
        has_sequence=True,
    )
    return tracer.trace(variant, 2)


def test_no_scores_are_written() -> None:
    flash, eager = trace("flash"), trace("eager")
    square = [[shape for shape in step.tensor_shape if f"{SEQ}, {SEQ}" in shape] for step in (flash, eager)]
    assert square[1]
    assert not square[0]
    assert {"flash3_attention_forward", "flash3_attention_backward"} <= {
        name.partition("[")[0] for name in flash.operator_names
    }


def test_forward_saves_its_output_and_the_log_sum_exp_alone() -> None:
    """vllm_flash_attn3/flash_attn_interface.py: FlashAttnFunc saves q, k, v, out and softmax_lse."""
    query = torch.empty(2, 96, 8, 64, dtype=torch.bfloat16, device="meta", requires_grad=True)
    key = torch.empty(2, 96, 2, 64, dtype=torch.bfloat16, device="meta", requires_grad=True)
    sink = torch.empty(8, dtype=torch.bfloat16, device="meta", requires_grad=True)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        out, lse = third.flash_attn_func(query, key, key, causal=True, s_aux=sink)
    assert [tuple(tensor.shape) for tensor in kept] == [
        (2, 96, 8, 64), (2, 96, 2, 64), (2, 96, 2, 64), (2, 96, 8, 64), (2, 8, 96)
    ]  # fmt: skip
    assert (out.dtype, lse.dtype, lse.requires_grad) == (torch.bfloat16, torch.float32, False)
    out.backward(torch.empty_like(out))
    assert query.grad is not None
    assert sink.grad is None


def test_scratch_of_both_directions() -> None:
    """flash_api_stable.cpp on Hopper, heads of 64: blocks of 128 queries and 128 keys; 200 tokens are 256."""
    query = torch.empty(2, 200, 8, 64, dtype=torch.bfloat16, device="meta")
    key = torch.empty(2, 200, 2, 64, dtype=torch.bfloat16, device="meta")
    lse = torch.empty(2, 8, 200, device="meta")
    assert attention_scratch("flash3_attention_forward", (query, key, key, None, None, True, False, None), 132) == [4]
    back = (query, query, key, key, query, lse, None, None, True, False, query, key, key)
    rows, keys = 2 * 256 * 8, 2 * 256 * 2
    assert attention_scratch("flash3_attention_backward", back, 132) == [
        4 * rows, 4 * rows, 4 * rows * 64, 4 * keys * 64, 4 * keys * 64, 4 * 2 * 2 * 8
    ]  # fmt: skip
    starts = torch.empty(3, dtype=torch.int32, device="meta")
    laid, laid_key = query.flatten(0, 1), key.flatten(0, 1)
    packed = (laid, laid, laid_key, laid_key, laid, lse, starts, starts, True, False, laid, laid_key, laid_key)
    # 400 tokens and a block for each of two sequences, in whole blocks.
    assert attention_scratch("flash3_attention_backward", packed, 132)[0] == 4 * 8 * 768


def test_flops_are_those_of_any_attention() -> None:
    query = torch.empty(3, 128, 8, 64, dtype=torch.bfloat16, device="meta")
    key = torch.empty(3, 128, 2, 64, dtype=torch.bfloat16, device="meta")
    forward = torch.ops.gpu_plan.flash3_attention_forward.default
    counted = operator_flops(forward, (query, key, key, None, None, True, False, None), None)
    assert counted == 2 * 2 * 3 * 8 * 128 * 128 * 64


def test_what_its_kernel_cannot_do_is_refused() -> None:
    with pytest.raises(InputError, match="on Hopper alone"):
        trace("flash", capability=(8, 0))
    with pytest.raises(InputError, match="gives attention sinks no gradient"):
        trace("flash", frozen=False)
    many = torch.empty(1, 8, 65, 16, dtype=torch.bfloat16, device="meta")
    with pytest.raises(InputError, match="up to 64 attention sinks in bf16"):
        third.flash_attn_func(many, many, many, s_aux=many[0, 0, :, 0])


def test_the_classes_are_those_that_name_the_kernel() -> None:
    folder = Path(transformers.__file__).parent / "models"
    named = re.compile(r"_compatible_flash_implementations = \[[^\]]*vllm-flash-attn3")
    found = {path.parent.name for path in folder.glob("*/modeling_*.py") if named.search(path.read_text())}
    assert found == sinks._TYPES


@pytest.mark.parametrize("words", [["--task", "infer"], ["--peft", "lora"]])
def test_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offered where the class's own attention runs, refused once, in one line, where its kernel does not."""
    monkeypatch.setenv("GPU_PLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text(json.dumps(config()))
    size = (
        ["--context", "96"] if "infer" in words else ["--seq-len", "96", "--micro-batch", "1", "--strategy", "single"]
    )
    asked = [str(tmp_path), *words, *size, "--precision", "bf16", "--quiet"]
    assert main([*asked, "--gpus", "1xH100", "--json"]) == 0
    changes = [one["change"] for one in json.loads(capsys.readouterr().out)["alternatives"]]
    assert changes[0] == "--attention flash"
    assert main([*asked, "--gpus", "1xA100", "--attention", "flash"]) == 2
    said = capsys.readouterr().err
    assert said.count("gpt_oss has attention sinks, whose kernel runs on Hopper alone") == 1
    assert said.count("\n") == 1


def test_a_script_s_own_model_finds_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under FlashAttention-2's name too, which transformers puts right; other kernels are asked for as ever."""
    asked: list[str] = []
    monkeypatch.setattr(hub_kernels, "load_and_register_attn_kernel", lambda name, *rest, **more: asked.append(name))
    values = AutoConfig.for_model(**config())
    with flash_allowed(), hub_answered((9, 0)), torch.device("meta"):
        for name in ("flash_attention_2", "kernels-community/vllm-flash-attn3"):
            model = GptOssForCausalLM._from_config(values, attn_implementation=name, dtype=torch.bfloat16)
            assert model.config._attn_implementation == "kernels-community/vllm-flash-attn3"
        assert asked == ["kernels-community/vllm-flash-attn3"] * len(asked)
        hub_kernels.load_and_register_attn_kernel("kernels-community/flash-mla")
    assert asked[-1] == "kernels-community/flash-mla"
    with hub_answered((8, 0)), pytest.raises(InputError, match="on Hopper alone"):
        hub_kernels.load_and_register_attn_kernel("kernels-community/vllm-flash-attn3")
