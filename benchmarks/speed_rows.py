"""Which published speeds can be compared, and the configuration of each in this program's words."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Peft, Precision, Stack, Workload

DATA = Path(__file__).parent / "data" / "published_speed.json"
Row = dict[str, Any]

_GPUS = {
    "A100": "A100-80GB",
    "A100-80GB": "A100-80GB",
    "A100-SXM4-80GB": "A100-80GB",
    "A100-40GB": "A100-40GB",
    "A100-SXM4-40GB": "A100-40GB",
    "H100": "H100",
    "H100-80GB": "H100",
    "RTX 3090 (280 W, no NVLink)": "RTX3090",
    "RTX 4090": "RTX4090",
}
_NODE_BYTES_PER_S = {"internevo": 4 * 100e9 / 8}
"""Network of a node where the source states another than the usual one."""

_OWN_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "internlm/internlm-7b": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
        "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 103168, "max_position_embeddings": 2048,
    },
    "Qwen/Qwen-1_8B": {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 2048,
        "intermediate_size": 5504, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
        "vocab_size": 151936, "max_position_embeddings": 8192, "tie_word_embeddings": False,
    },
    "stabilityai/stablelm-base-alpha-3b": {
        "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 4096,
        "intermediate_size": 16384, "num_hidden_layers": 16, "num_attention_heads": 32, "vocab_size": 50688,
        "max_position_embeddings": 4096, "rotary_pct": 0.25,
    },
}  # fmt: skip
"""Architectures outside the catalog, by their published sizes in the nearest class of transformers."""

_SAME = {"meta-llama/Llama-3.2-3B-Instruct": "meta-llama/Llama-3.2-3B"}

_TARGETS = {
    "Qwen/Qwen-1_8B": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    "stabilityai/stablelm-base-alpha-3b": ("query_key_value",),
    "meta-llama/Llama-2-7b-hf": ("k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"),
}
"""Adapted modules in the names of the built class, where the row has others or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One row in this program's words."""

    model: str
    config: Mapping[str, Any] | None
    """Config where the catalog has none."""
    cluster: Cluster
    workload: Workload
    strategy: str
    checkpointing: Checkpointing
    adapter: Adapter | None
    micro_batch: int
    accumulation_steps: int
    differences: tuple[str, ...]


def set_aside(row: Row) -> str | None:
    """Why a row is not compared, or None."""
    parallel = row["parallel"] or {}
    if row["confidence"] == "low":
        return "configuration incomplete"
    if row.get("task", "") and "inference" in row["task"]:
        return "no training"
    if row["compile"]:
        return "torch.compile is not modelled"
    if row["quantization"]:
        return "quantised weights or products"
    if any((parallel.get(axis) or 1) > 1 for axis in ("tp", "pp", "cp", "ep")):
        return "tensor, pipeline, context or expert parallel"
    if "selective" in str(row["activation_checkpointing"]):
        return "selective checkpointing is not modelled"
    if row["group"].startswith(("megatron", "bigscience")):
        return "Megatron's own kernels"
    if row["group"] == "litgpt":
        return "iteration time of samples of unknown length: the stated one is that of the longest"
    if row["group"] == "qwen-readme" and not row["lora"]:
        return "which DeepSpeed stage ran is not stated"
    if row["micro_batch_per_gpu"] is None or row["seq_len"] is None or row["gpu"]["count"] is None:
        return "batch, length or device count unknown"
    if row["gpu"]["model"] not in _GPUS:
        return f"device {row['gpu']['model']}"
    if _measured(row) is None:
        return "no speed"
    return None


def _measured(row: Row) -> float | None:
    figures = row["measured"]
    if "tokens_per_s_per_gpu" not in figures and "step_time_s" not in figures:
        return None
    return measured_step_seconds(row)


def measured_step_seconds(row: Row) -> float:
    """Seconds of one optimizer step."""
    figures = row["measured"]
    if "tokens_per_s_per_gpu" in figures:
        tokens = row["micro_batch_per_gpu"] * (row["grad_accum"] or 1) * row["seq_len"]
        return float(tokens / figures["tokens_per_s_per_gpu"])
    return float(figures["step_time_s"])


def group_of(row: Row) -> str:
    """Rows of one group have one source and one kind of configuration."""
    kind = "LoRA" if row["lora"] else "full"
    fused = " fused kernels" if _has_fused_kernels(row) else ""
    devices = "1 GPU" if row["gpu"]["count"] == 1 else "several GPUs"
    long = " above 2048 tokens" if row["group"] == "llm-foundry" and row["seq_len"] > 2048 else ""
    return f"{row['group']} {row['gpu']['model'].split(' (')[0]} {kind} {devices}{fused}{long}"


def _has_fused_kernels(row: Row) -> bool:
    return str(row["fused_or_chunked_loss"]).startswith(("triton", "liger"))


def setup_of(row: Row) -> Setup:
    """The configuration of a row that is not set aside."""
    differences = []
    if _has_fused_kernels(row):
        differences.append("the run had fused kernels, the estimate has not")
    config = _config(row)
    if config is not None:
        differences.append("architecture by its sizes in the nearest class of transformers")
    strategy = _strategy(row)
    if strategy == "fsdp" and row["strategy"].startswith("FSDP1"):
        differences.append("FSDP1 with adapters compared with FSDP2")
    if row["group"] == "llm-foundry":
        differences.append("the benchmark script's default attention was Triton's first FlashAttention; compared as v2")
    if row["group"] == "fsdp_qlora":
        differences.append("adapters in bf16 there, in fp32 here, with casts around them")
    if row["group"] == "internevo":
        differences.append("InternEvo overlaps the transfers of its own ZeRO-1; compared with DeepSpeed's, which waits")
    lora = row["lora"]
    cluster = _cluster(row)
    precision = _precision(row)
    adapter = None
    if lora:
        targets = _TARGETS.get(row["model"]) or tuple(t for t in lora["targets"] if t != "c_attn")
        adapter = Adapter(peft=Peft("lora"), rank=lora["rank"], targets=targets, dropout=lora.get("dropout") or 0.0)
    full = str(row["activation_checkpointing"]).startswith("full")
    workload = Workload(
        seq_len=row["seq_len"],
        precision=precision,
        optimizer=Optimizer("adamw-forloop") if row["group"] == "llm-foundry" else Optimizer("adamw"),
        attention=_attention(row),
        stack=Stack.TRAINER if row["group"] in ("fms-acceleration", "qwen-readme") else Stack.PLAIN,
        clipping=row["group"] not in ("litgpt", "torchtune"),
        peft=Peft("lora") if lora else Peft("none"),
        lora_rank=adapter.rank if adapter else None,
        lora_targets=adapter.targets if adapter else None,
        strategy=strategy,
    )
    return Setup(
        model=_SAME.get(row["model"], row["model"]),
        config=config,
        cluster=cluster,
        workload=workload,
        strategy=strategy,
        checkpointing=Checkpointing.FULL if full else Checkpointing.NONE,
        adapter=adapter,
        micro_batch=row["micro_batch_per_gpu"],
        accumulation_steps=row["grad_accum"] or 1,
        differences=tuple(differences),
    )


def _attention(row: Row) -> Attention:
    """FlashAttention-2 where it was asked for, and behind SDPA before torch 2.5 knew cuDNN (torchao's runs)."""
    flash = "flash" in str(row["attention"]) or row["group"] == "torchao"
    return Attention.FLASH if flash else Attention.SDPA


def _precision(row: Row) -> Precision:
    sharded = row["group"] in ("llm-foundry", "torchtitan", "torchao", "internevo")
    return Precision("bf16-mixed") if sharded or row["dtype"]["params"] in ("fp32", "float32") else Precision("bf16")


def _strategy(row: Row) -> str:
    name = row["strategy"]
    if "NO_SHARD" in name:
        return "ddp"
    if name.startswith("FSDP1"):
        return "fsdp" if row["lora"] else "fsdp1"
    if name.startswith("FSDP2"):
        return "fsdp"
    return "zero1" if "ZeRO-1" in name else "single"


def _cluster(row: Row) -> Cluster:
    count, gpu = row["gpu"]["count"], _GPUS[row["gpu"]["model"]]
    cluster = parse_cluster(f"{count}x{gpu}" if count <= 8 else f"{count // 8}x8x{gpu}")
    node_rate = _NODE_BYTES_PER_S.get(row["group"])
    if node_rate is None:
        return cluster
    return replace(cluster, gpu=replace(cluster.gpu, network_bytes_per_s=node_rate / cluster.gpus_per_node))


def _config(row: Row) -> Mapping[str, Any] | None:
    if row["model"] in _OWN_CONFIGS:
        return _OWN_CONFIGS[row["model"]]
    if not row["model"].startswith("mosaicml MPT"):
        return None
    arch = row["arch"]
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": arch["hidden"],
        "n_layer": arch["layers"], "n_head": arch["heads"], "n_inner": arch["intermediate"],
        "vocab_size": arch["vocab"], "n_positions": row["seq_len"], "attn_pdrop": 0.0, "embd_pdrop": 0.0,
        "resid_pdrop": 0.0, "activation_function": "gelu",
    }  # fmt: skip


def rows() -> list[Row]:
    """The kept rows."""
    found: list[Row] = json.loads(DATA.read_text())["rows"]
    return found
