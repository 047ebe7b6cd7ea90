"""Which published speeds can be compared, and the configuration of each in this program's words."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.accuracy.machines import cluster_of
from benchmarks.accuracy.models import Models, sizes_of
from benchmarks.accuracy.row import (
    Row,
    SetAside,
    check_sense,
    field,
    is_true,
    needed,
    number,
    software_group,
    text,
    whole,
)
from benchmarks.accuracy.speed import internevo, megatron
from benchmarks.accuracy.speed.internevo import zero1_of
from benchmarks.accuracy.speed.setup import Setup
from benchmarks.accuracy.speed.way import way_of
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.units import GIB
from gpu_plan.planner.workload.training import (
    MOST_TOKENS,
    Attention,
    Optimizer,
    Peft,
    Workload,
)

_NODE_BYTES_PER_S = {"internevo": 4 * 100e9 / 8}
"""Network of a node where the source states another than the usual one."""
_NETWORKS = {"internevo": "roce"}
"""And what it is (InternLM/InternEvo doc/en/train_performance.md: 4x100 Gb RoCE)."""

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

_WATTS = re.compile(r"\((?:[^)]*[ ,])?(?P<watts>[0-9]{2,4}) ?W\b")
_LIMITED: Mapping[tuple[str, str], str] = {("torchao", "H100"): "500", ("torchtitan", "H100"): "500"}
"""Sources whose H100 take less than the usual 700 W: those of Meta (pytorch/torchtitan benchmarks/*.md)."""
_MEMORY: Mapping[tuple[str, str], float] = {("torchao", "H100"): 2.4e12, ("torchtitan", "H100"): 2.4e12}
"""Theirs of 96 GB have HBM2e, bytes per second (pytorch/ao torchao/testing/training/roofline_utils.py; torchtitan's
own pages name it)."""
_ATTENTION: Mapping[str, str] = {"llm-foundry": "flash1", "torchao": "flash"}
"""Triton's first FlashAttention was the benchmark script's default; behind SDPA torch chose FlashAttention-2 before it
named cuDNN's first (torchao's runs)."""
_MEGATRON = ("megatron", "bigscience", "primus", "vtrain", "mlperf", "nemo", "simumax")
_DIFFERENCES = {
    "llm-foundry": "the benchmark script's default attention was Triton's: compared with the first FlashAttention",
    "fsdp_qlora": "LoRA on a bf16 base: compared with LitGPT's stack, whose adapters are in bf16 as well",
    "internevo": "InternEvo's own ZeRO-1, whose transfers are as its source has them",
}
_TARGETS = {
    "Qwen/Qwen-1_8B": ("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    "stabilityai/stablelm-base-alpha-3b": ("query_key_value",),
    "meta-llama/Llama-2-7b-hf": ("k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"),
}
"""Adapted modules in the names of the built class, where the row has others or none. Qwen's one projection of queries,
keys and values (`c_attn`) has one adapter (QwenLM/Qwen finetune.py: LoraArguments)."""


def _check(row: Row) -> None:
    """SetAside for what cannot be compared."""
    if text(row, "confidence") == "low":
        raise SetAside("configuration incomplete")
    if "inference" in text(row, "task"):
        raise SetAside("no training")
    if not _is_megatron(row) and any((whole(row, f"parallel.{axis}") or 1) > 1 for axis in ("pp", "cp", "ep")):
        raise SetAside("pipeline, context or expert parallel outside of Megatron")
    device = text(row, "gpu.model")
    if "power limited" in device.lower() and _WATTS.search(device) is None:
        raise SetAside("devices of a power limit that is not told")
    group = software_group(row)
    if group == "litgpt":
        raise SetAside("iteration time of samples of unknown length: the stated one is that of the longest")
    if group == "qwen-readme" and not field(row, "lora"):
        raise SetAside("which DeepSpeed stage ran is not stated")
    if number(row, "measured.tokens_per_s_per_gpu") is None and number(row, "measured.step_time_s") is None:
        raise SetAside("no speed")
    check_sense(row)


def _is_megatron(row: Row) -> bool:
    told = f"{software_group(row)} {text(row, 'source')} {text(row, 'software')}".lower()
    return any(word in told for word in _MEGATRON)


def measured_step_seconds(row: Row, tokens: float) -> float:
    """Seconds of one optimizer step of so many tokens a device; the time itself where degrees share a sample."""
    rate, seconds = number(row, "measured.tokens_per_s_per_gpu"), number(row, "measured.step_time_s")
    shared = any((whole(row, f"parallel.{axis}") or 1) > 1 for axis in ("tp", "pp", "cp"))
    if rate is not None and not (shared and seconds is not None):
        return tokens / rate
    assert seconds is not None
    return seconds


def group_of(row: Row) -> str:
    """Rows of one group have one source and one kind of configuration."""
    kind = "LoRA" if field(row, "lora") else "full"
    fused = " fused kernels" if _has_fused_kernels(row) else ""
    told = text(row, "quantization").split(" ")[0].lower()
    kind = f"{kind} {told}" if told else kind
    compiled = " compiled" if is_true(row, "compile") else ""
    devices = "1 GPU" if whole(row, "gpu.count") == 1 else "several GPUs"
    group = software_group(row)
    long = " above 2048 tokens" if group == "llm-foundry" and (whole(row, "seq_len") or 0) > 2048 else ""
    return f"{group} {text(row, 'gpu.model').split(' (')[0]} {kind} {devices}{fused}{compiled}{long}"


def _has_fused_kernels(row: Row) -> bool:
    return text(row, "fused_or_chunked_loss").startswith(("triton", "liger"))


def setup_of(row: Row, models: Models) -> Setup:
    """The configuration of a row. SetAside with the reason why it cannot be said."""
    _check(row)
    group = software_group(row)
    if _is_megatron(row):
        return megatron.setup_of(row)
    cluster = _cluster(row, group)
    micro_batch = needed(row, "micro_batch_per_gpu", "micro batch", MOST_TOKENS)
    counted = "num_microbatches" if field(row, "grad_accum") is None else "grad_accum"
    accumulation = needed(row, counted, "accumulation", 2**20) if field(row, counted) is not None else 1
    seq_len = needed(row, "seq_len", "sequence length", MOST_TOKENS // micro_batch)
    own = _own_config(row, seq_len, group)
    source = None if own else models.of(row)
    strategy = _strategy(row)
    adapter = _adapter(row)
    way = way_of(row, strategy)
    if adapter is not None:
        adapter = replace(adapter, peft=way.peft)
    workload = Workload(
        seq_len=seq_len,
        precision=way.precision,
        optimizer=Optimizer("adamw-forloop") if group == "llm-foundry" else Optimizer("adamw"),
        attention=_attention(row),
        stack=way.stack,
        clipping=group not in ("litgpt", "torchtune"),
        peft=way.peft,
        lora_rank=adapter.rank if adapter else None,
        lora_targets=adapter.targets if adapter else None,
        strategy=strategy,
        settings=tuple(sorted((*_settings(row, group), *way.settings))),
        tensor_parallel=needed(row, "parallel.tp", "degree tp", 2**14) if strategy == "fsdp_tp" else None,
        fused_loss="fused-linear" in text(row, "fused_or_chunked_loss"),
    )
    return Setup(
        source=source,
        config=own,
        cluster=cluster,
        workload=workload,
        strategy=strategy,
        mirrored=zero1_of(row) if group == "internevo" else STRATEGIES[strategy],
        checkpointing=way.checkpointing,
        adapter=adapter,
        micro_batch=micro_batch,
        accumulation_steps=accumulation,
        differences=tuple(_differences(row, group, own is not None)),
    )


def _differences(row: Row, group: str, own: bool) -> Iterator[str]:
    if _has_fused_kernels(row):
        yield "the run's fused kernels are compared with Liger's"
    if own:
        yield "architecture by its sizes in the nearest class of transformers"
    if group in _DIFFERENCES and not text(row, "quantization"):
        yield _DIFFERENCES[group]


def _settings(row: Row, group: str) -> tuple[tuple[str, str], ...]:
    """`--set` pairs: the power that the source limits its devices to, fused kernels, the attention of its time."""
    found = {}
    watts = _WATTS.search(text(row, "gpu.model"))
    limit = watts["watts"] if watts else _LIMITED.get((group, text(row, "gpu.model").partition("-")[0]))
    if limit is not None:
        found["gpu.power_limit"] = limit
    if _has_fused_kernels(row):
        found["kernels.liger"] = "true"
    if group in _ATTENTION:
        found["attention.kernel"] = _ATTENTION[group]
    if group == "internevo":
        found |= internevo.SETTINGS
    return tuple(sorted(found.items()))


def _adapter(row: Row) -> Adapter | None:
    if not field(row, "lora"):
        return None
    targets = field(row, "lora.targets")
    named = targets if isinstance(targets, list) else []
    chosen = _TARGETS.get(text(row, "model")) or tuple(t for t in named if isinstance(t, str) and t != "c_attn")
    if not chosen:
        raise SetAside("adapted modules not stated")
    dropout = number(row, "lora.dropout") or 0.0
    if dropout >= 1:
        raise SetAside("dropout of the adapters makes no sense")
    rank = needed(row, "lora.rank", "rank of the adapters", 4096)
    return Adapter(peft=Peft("lora"), rank=rank, targets=chosen, dropout=dropout)


def _attention(row: Row) -> Attention:
    """FlashAttention-2's own package where it was asked for."""
    told = text(row, "attention").lower()
    return Attention.FLASH if "flash" in told and not told.startswith("sdpa") else Attention.SDPA


def _strategy(row: Row) -> str:
    """Name in the registry. SetAside where nothing there is like the row's."""
    name = text(row, "strategy")
    if (whole(row, "parallel.tp") or 1) > 1:
        if name.startswith("FSDP2 "):
            return "fsdp_tp"
        raise SetAside("tensor parallel of a project's own")
    if "NO_SHARD" in name or name.startswith("DDP"):
        return "ddp"
    if "HYBRID_SHARD" in name:
        raise SetAside("FSDP1 HYBRID_SHARD: not modelled")
    if name.startswith("FSDP1"):
        return "fsdp1"
    if name.startswith("FSDP2"):
        return "fsdp"
    if "ZeRO-1" in name:
        return "zero1"
    if not name.startswith("single"):
        raise SetAside(f"{name.split(',')[0] or 'strategy not stated'}: not compared")
    if (whole(row, "gpu.count") or 1) > 1:
        raise SetAside("one process on several GPUs")
    return "single"


def _cluster(row: Row, group: str) -> Cluster:
    cluster = cluster_of(row)
    memory = _MEMORY.get((group, text(row, "gpu.model").partition("-")[0]))
    if memory is not None and cluster.gpu.marketed_bytes == 96 * GIB:
        cluster = replace(cluster, gpu=replace(cluster.gpu, bandwidth_bytes_per_s=memory))
    node_rate = _NODE_BYTES_PER_S.get(group)
    if node_rate is None:
        return cluster
    rate = node_rate / cluster.gpus_per_node
    return replace(cluster, gpu=replace(cluster.gpu, network_bytes_per_s=rate, network=_NETWORKS.get(group)))


def _kempnerforge(row: Row, seq_len: int) -> Mapping[str, Any]:
    """Llama 3's layers alone; their width by Llama's own rule, in multiples of 256 (kempnerforge/config/schema.py)."""
    if "MoE" in text(row, "model"):
        raise SetAside("KempnerForge's own experts")
    hidden = needed(row, "arch.hidden_size", "hidden of the model", 2**20)
    factor = number(row, "arch.ffn_dim_multiplier") or 1.0
    told = whole(row, "arch.intermediate_size")
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
        "intermediate_size": told or -(-int(hidden * 8 / 3 * factor) // 256) * 256,
        "num_hidden_layers": needed(row, "arch.num_hidden_layers", "layers of the model", 2**12),
        "num_attention_heads": needed(row, "arch.num_attention_heads", "heads of the model", 2**12),
        "num_key_value_heads": whole(row, "arch.num_key_value_heads"),
        "vocab_size": needed(row, "arch.vocab_size", "vocab of the model", 2**24),
        "max_position_embeddings": seq_len, "tie_word_embeddings": False,
    }  # fmt: skip


def _own_config(row: Row, seq_len: int, group: str) -> Mapping[str, Any] | None:
    if text(row, "model") in _OWN_CONFIGS:
        return _OWN_CONFIGS[text(row, "model")]
    if group == "kempnerforge":
        return _kempnerforge(row, seq_len)
    if not text(row, "model").startswith("mosaicml MPT"):
        return None
    sizes = sizes_of(row)
    if not {"hidden", "layers", "heads", "intermediate", "vocab"} <= set(sizes):
        raise SetAside("model not at hand")
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": sizes["hidden"],
        "n_layer": sizes["layers"], "n_head": sizes["heads"], "n_inner": sizes["intermediate"],
        "vocab_size": sizes["vocab"], "n_positions": seq_len, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
        "resid_pdrop": 0.0, "activation_function": "gelu",
    }  # fmt: skip
