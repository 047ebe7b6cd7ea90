"""Rows that say more than their step is made again with are set aside in words, never judged by a default."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy.inference.cases import case_of as generation_of
from benchmarks.accuracy.memory.cases import case_of
from benchmarks.accuracy.models import Models
from benchmarks.accuracy.row import SetAside
from benchmarks.accuracy.trainer.setup import Setup

ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row for row in json.loads(Path("benchmarks/data/published_memory.json").read_text())["rows"]
}
SINGLE, FLAT, QLORA = "tm-fms-acceleration-0176", "tm-fms-acceleration-0135", "tm-fms-acceleration-0030"
GENERATION = "im-qwen-speed-0001"
LORA = {"rank": 16, "alpha": 16, "targets": ["q_proj"]}
MODELS = Models()
TORCH = "torch 2.4.1, transformers 4.45.2"


def _case(name: str, **changed: Any) -> Setup:
    case = case_of({**ROWS[name], **changed}, MODELS)
    assert isinstance(case, Setup)
    return case


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"software": f"unsloth 2024.11, {TORCH}"}, "unsloth's own kernels, checkpoints and loss: not mirrored"),
        ({"source": "hiyouga/LLaMAFactory:README.md", "software": TORCH}, "LLaMA-Factory's own patches of its time"),
        ({"task": "sequence classification"}, "task sequence classification: its head and loss are not mirrored"),
        ({"task": "image-classification"}, "its head and loss are not mirrored"),
        ({"lora": {**LORA, "use_dora": True}, "task": "lora"}, "adapters with use_dora: not mirrored"),
        ({"lora": {**LORA, "modules_to_save": ["lm_head"]}, "task": "lora"}, "adapters with modules_to_save"),
        ({"lora": LORA, "task": "peft:VERA"}, "vera adapters are not in this program"),
        ({"optimizer": "AdamW (bf16 states)"}, "optimizer adamw (bf16 states): what its name does not tell"),
        ({"fused_or_chunked_loss": "cut cross entropy"}, "loss cut cross entropy is not mirrored"),
        ({"attention": "sdpa (math)"}, "attention sdpa (math)"),
        ({"seq_len_kind": "average of the data"}, "lengths vary: average of the data"),
        ({"activation_checkpointing": "full, offloaded to CPU"}, "full, offloaded to CPU: offload is not compared"),
        ({"gpu": {"count": 1, "memory_gb": 16, "model": "T4", "nodes": 1}}, "which a T4 does not run"),
        ({"gpu": {"count": 1, "memory_gb": 96, "model": "Gaudi2", "nodes": 1}}, "not that of torch's allocator"),
        ({"notes": "compiled by inductor"}, "a step that is compiled: not mirrored"),
        ({"notes": "optimizer step in backward"}, "steps within backward: not mirrored"),
        ({"notes": "float8 training"}, "float8: not mirrored"),
        ({"notes": "dynamic padding"}, "lengths that vary: not mirrored"),
        ({"notes": "CUDA graphs"}, "CUDA graphs, which keep pools of their own: not mirrored"),
        ({"notes": "DPO with reference model"}, "more than one model: not mirrored"),
        ({"activation_checkpointing": "full, except last layer"}, "checkpointing full, except last layer"),
        ({"activation_checkpointing": "full (MLP only)"}, "checkpointing full (MLP only)"),
        ({"software": "torch 1.13, transformers 4.28.1"}, "transformers 4.28: its rotary tables and masks"),
        ({"software": "torch 3.0, transformers 9.0"}, "transformers 9.0, newer than what is traced here"),
        ({"software": f"optimum-habana, {TORCH}"}, "Habana's own kernels: not mirrored"),
        ({"optimizer": "Adam + EMA"}, "optimizer adam + ema: what its name does not tell"),
        ({"gpu": {"count": 1, "memory_gb": 24, "model": "A100", "nodes": 1}}, "A100 with 24 GB, not 43"),
        ({"gpu": {"count": 1, "memory_gb": 10, "model": "A100 MIG 1g.10gb", "nodes": 1}}, "a part of a GPU"),
        ({"peft": "lora"}, "peft: not mirrored"),
        ({"notes": "embeddings frozen"}, "weights that are frozen: not mirrored"),
        ({"label_smoothing": 0.1}, "label_smoothing: not mirrored"),
        ({"ema": True}, "ema: not mirrored"),
    ],
    ids=str,
)
def test_what_is_not_mirrored_is_named(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(SetAside) as caught:
        _case(SINGLE, **changed)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "name"),
    [("FSDP FULL_SHARD", "fsdp1"), ("DeepSpeed stage 3", "zero3"), ("deepspeed zero stage2", "zero2"), ("DDP", "ddp")],
)
def test_ways_to_shard_by_how_sources_write_them(strategy: str, name: str) -> None:
    assert _case(FLAT, strategy=strategy).strategy == name


@pytest.mark.parametrize(
    "strategy",
    [
        "FSDP2 2D",
        "DeepSpeed ZeRO-3 + TP",
        "FSDP1 FULL_SHARD, SIZE_BASED_WRAP",
        "FSDP2, HSDP",
        "FSDP2 (reshard_after_forward False)",
        "DeepSpeed ZeRO-3, ZeRO++",
    ],
)
def test_other_ways_to_shard_are_not_taken_for_the_plain_ones(strategy: str) -> None:
    with pytest.raises(SetAside, match="is not modelled"):
        _case(FLAT, strategy=strategy)


@pytest.mark.parametrize("told", ["fp32", "int8", "cpu"])
def test_states_in_another_type_than_counted(told: str) -> None:
    types = {"compute": "bfloat16", "params": "bfloat16", "basis": "no bf16/fp16 flag", "optimizer_states": told}
    with pytest.raises(SetAside, match=r"optimizer states in .* beside weights in bfloat16"):
        _case(SINGLE, lora=None, task="full-ft", dtype=types)


def test_what_is_said_beside_nf4() -> None:
    with pytest.raises(SetAside, match="what is said beside nf4 is not mirrored"):
        _case(QLORA, quantization="bnb-nf4, double quant")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("AdamW 8bit", "adamw-8bit"),
        ("paged_adamw_8bit", "paged-adamw-8bit"),
        ("AdamW (fused)", "adamw-fused"),
        ("AdamW (non-fused)", "adamw"),
        ("adamw_torch (HF Trainer default, foreach)", "adamw"),
        ("torch.optim.SGD", "sgd"),
        ("SGD with momentum 0.9", "sgd-momentum"),
        ("SGD, momentum=0", "sgd"),
        ("AdamW foreach=False", "adamw-forloop"),
        ("AdamW, betas 0.9 0.95", "adamw"),
        ("AdamW amsgrad", "adamw-amsgrad"),
        ("torch.optim.NAdam", "nadam"),
        ("Adam", "adamw"),
    ],
)
def test_optimizers_by_how_sources_write_them(said: str, name: str) -> None:
    assert _case(SINGLE, optimizer=said).optimizer == name


def test_what_changes_no_memory_stays_scored() -> None:
    assert _case(SINGLE, lora={**LORA, "use_rslora": True}, task="lora").lora == (16, ("q_proj",), 0.0)
    assert _case(SINGLE, notes="no label smoothing, without offload").optimizer == "adamw"
    assert _case(SINGLE, notes="NEFTune alpha 5").optimizer == "adamw"  # tests/accuracy/test_cpu_trainer_options.py
    assert _case(SINGLE, notes="without CUDA graphs").optimizer == "adamw"


def test_adapters_by_peft_s_own_names() -> None:
    given = {"r": 8, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.1}
    assert _case(SINGLE, lora=given, task="lora").lora == (8, ("q_proj", "v_proj"), 0.1)
    assert _case(SINGLE, lora={"rank": 8, "targets": "all-linear"}, task="lora").lora == (8, ("all-linear",), 0.0)


@pytest.mark.parametrize(("said", "full"), [("enabled", True), ("gradient checkpointing", True), ("disabled", False)])
def test_checkpoints_by_how_sources_write_them(said: str, full: bool) -> None:
    assert _case(SINGLE, activation_checkpointing=said).checkpointing is full


@pytest.mark.parametrize(("said", "kind"), [("sdpa (flash backend)", "sdpa"), ("FA2", "flash")])
def test_attention_by_how_sources_write_it(said: str, kind: str) -> None:
    assert _case(SINGLE, attention=said).attention.value == kind


def _generation(**changed: Any) -> str:
    """The reason why a generation in 16 bits is set aside once its row is changed; empty where it is not."""
    rows = json.loads(Path("benchmarks/data/published_inference.json").read_text())
    row = next(row for row in rows if row["id"] == GENERATION)
    try:
        generation_of({**row, **changed}, MODELS)
    except SetAside as reason:
        return str(reason)
    return ""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"strategy": "SGLang"}, "sglang's own buffers and kernels"),
        ({"strategy": "device_map=auto"}, "device_map=auto is not mirrored"),
        ({"software": "vllm 0.6, transformers 4.46"}, "vllm's own buffers and kernels"),
        ({"attention": "eager"}, "attention eager is not mirrored"),
        ({"compile": True}, "compiled by a torch of its time"),
        ({"dtype": {"compute": "fp32", "params": "fp32"}}, "computes in fp32"),
        ({"kv_cache": "fp8"}, "kv_cache: not mirrored"),
        ({"num_beams": 4}, "num_beams: not mirrored"),
        ({"lora": LORA}, "lora: not mirrored"),
        ({"task": "embedding"}, "task embedding: no generation of text alone"),
        ({"gpu": {"count": 1, "memory_gb": 16, "model": "T4", "nodes": 1}}, "a T4 does not run FlashAttention 2"),
        ({"notes": "static cache"}, "a cache of fixed size: not mirrored"),
        ({"notes": "4 beams"}, "beam search: not mirrored"),
        ({"notes": "no offload, not a static cache"}, ""),
        ({"attention": "flash_attention_2", "compile": False, "num_beams": 1}, ""),
    ],
    ids=str,
)
def test_generations_that_ran_otherwise_are_named(changed: dict[str, Any], reason: str) -> None:
    assert _generation(**changed).startswith(reason)
    assert bool(_generation(**changed)) == bool(reason)
