"""Jobs of Megatron-LM and Megatron-DeepSpeed: their own GPT under tensor, pipeline, context and expert parallel ranks.

What a row does not say is its project's: SimuMax ran Megatron-core with Transformer Engine on eight B200
(simu_tools/megatron_scripts), vTrain and BigScience Megatron-DeepSpeed, whose layers are Megatron's before it had
sequence parallelism or fused attention.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.accuracy.machines import cluster_of
from benchmarks.accuracy.models import size_in
from benchmarks.accuracy.row import Row, SetAside, field, needed, software_group, text, whole
from benchmarks.accuracy.speed.setup import Setup
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.strategy.megatron.layouts import layouts
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.workload.training import MOST_TOKENS, Attention, Checkpointing, Optimizer, Precision, Workload

_NODE_BYTES_PER_S = {"vtrain": 800e9 / 8, "bigscience": 4 * 100e9 / 8}
"""Network of a node: VIA-Research/vTrain config/validation (inter_node_bandwidth 800), and four Omni-Path links of Jean
Zay (bigscience-workshop/bigscience train/tr11-176B-ml/README.md)."""
_NETWORKS = {"bigscience": "omni-path"}
_OLD = {
    "megatron.overlap": "false", "megatron.gradient_fusion": "false", "megatron.grad_dtype": "bfloat16",
}  # fmt: skip
_DROPOUT = 0.1
"""Of activations and of attention's weights in Megatron-LM's GPT (arguments.py), as vTrain's own model has it
(src/model/ gpt_model.py) and BigScience's jobs did (train/tr11-176B-ml/README.md: "the default dropout settings are
inherited")."""
_MOST_UNBLOCKED = 160
"""GPUs from which on BigScience's large models hung on Jean Zay unless every launch was waited for (train/tr11-176B-ml/
chronicles-prequel.md: CUDA_LAUNCH_BLOCKING=1; "320, async: always hangs")."""
_CORE = {"megatron.cross_entropy": "te", "megatron.overlap": "false"}
_EIGHT_BITS = re.compile(r"fp8|fp4|float8", re.IGNORECASE)
_MOST_DEGREE = 2**14
_VTRAIN_GIB = 80
"""Of its A100, which it does not print: states of its 39.1B model over 16 ranks take more than 40."""
_SHARED_GROUPS = 3
"""Groups that SimuMax's launches choose experts from (run_pretrain_deepseekv2.sh: MOE_ROUTER_GROUP_TOPK)."""


def setup_of(row: Row) -> Setup:
    """The configuration of a row. SetAside with the reason why it cannot be said."""
    group = software_group(row)
    if _EIGHT_BITS.search(text(row, "dtype.compute")):
        raise SetAside("float8 and below under Megatron-core")
    old = group.startswith(("vtrain", "bigscience"))
    if not old and not group.startswith("simumax"):
        raise SetAside("Megatron's jobs of which recomputation or kernels are not stated")
    cluster = _cluster(row, group)
    micro_batch = needed(row, "micro_batch_per_gpu", "micro batch", MOST_TOKENS)
    counted = "num_microbatches" if field(row, "num_microbatches") is not None else "grad_accum"
    accumulation = needed(row, counted, "accumulation", 2**20)
    seq_len = needed(row, "seq_len", "sequence length", MOST_TOKENS // micro_batch)
    config = _gpt2(row, seq_len) if old else _llama(row)
    tensor = _degree(row, "tp")
    settings = _OLD if old else _CORE
    if group.startswith("vtrain"):
        settings = settings | {"megatron.distributed_optimizer": "false"}
    if old and tensor > 1:
        settings = settings | {"megatron.sequence_parallel": "false"}
    if config.get("n_routed_experts"):
        settings = settings | {"megatron.expert_capacity": "1"}
    workload = Workload(
        seq_len=seq_len,
        precision=Precision(
            "fp16-mixed" if "16" in text(row, "dtype.params") + text(row, "dtype.compute") and old else "bf16-mixed"
        ),
        optimizer=Optimizer("adamw"),
        attention=_attention(old, config),
        strategy="megatron",
        settings=tuple(sorted(settings.items())),
        tensor_parallel=tensor,
        pipeline_parallel=_degree(row, "pp"),
        context_parallel=_degree(row, "cp"),
        expert_parallel=_degree(row, "ep"),
        virtual_stages=_degree(row, "vpp") if _degree(row, "vpp") > 1 else None,
    )
    checkpointing = (
        Checkpointing.FULL if text(row, "activation_checkpointing").startswith("full") else Checkpointing.NONE
    )
    found = list(layouts(workload, cluster, checkpointing))
    if len(found) != 1:
        raise SetAside("its degrees do not make up its devices")
    layout = replace(found[0], hidden_dropout=_DROPOUT, attention_dropout=_DROPOUT) if old else found[0]
    return Setup(
        source=None,
        config=config,
        cluster=cluster,
        workload=workload,
        strategy="megatron",
        mirrored=STRATEGIES["megatron"],
        checkpointing=checkpointing,
        adapter=None,
        micro_batch=micro_batch,
        accumulation_steps=accumulation,
        differences=("Megatron-DeepSpeed's layers: compared with Megatron-core's, without fused attention",)
        if old
        else (),
        layout=layout,
        blocking=group.startswith("bigscience") and cluster.world_size > _MOST_UNBLOCKED,
        layers="megatron-deepspeed" if old else None,
    )


def _degree(row: Row, axis: str) -> int:
    found = field(row, f"parallel.{axis}")
    return 1 if found is None else needed(row, f"parallel.{axis}", f"degree {axis}", _MOST_DEGREE)


def _cluster(row: Row, group: str) -> Cluster:
    told = field(row, "gpu")
    if group.startswith("simumax"):
        row = {"gpu": {"model": "B200", "count": 8}}
    elif group.startswith("vtrain") and isinstance(told, Mapping):
        row = {"gpu": {**told, "memory_gb": told.get("memory_gb") or _VTRAIN_GIB}}
    cluster = cluster_of(row)
    rate = next((rate for name, rate in _NODE_BYTES_PER_S.items() if group.startswith(name)), None)
    if rate is None:
        return cluster
    network = next((kind for name, kind in _NETWORKS.items() if group.startswith(name)), None)
    gpu = replace(cluster.gpu, network_bytes_per_s=rate / cluster.gpus_per_node, network=network)
    return replace(cluster, gpu=gpu)


def _attention(old: bool, config: Mapping[str, Any]) -> Attention:
    """Transformer Engine's flash attention, cuDNN's for keys that are wider than values; none that is fused before."""
    if old:
        return Attention.EAGER
    return Attention.SDPA


def _sizes(row: Row) -> dict[str, int]:
    """By `size_in`'s names, from a row's own words or a config's."""
    arch = field(row, "arch")
    if not isinstance(arch, Mapping):
        raise SetAside("sizes of the model not stated")
    found = {}
    for key in ("hidden", "layers", "heads", "intermediate", "vocab"):
        path = (
            key if arch.get(key) is not None else next((n for n in arch if size_in({n: arch[n]}, key) is not None), key)
        )
        found[key] = needed(row, f"arch.{path}", f"{key} of the model", 2**20)
    return found


def _gpt2(row: Row, seq_len: int) -> dict[str, Any]:
    sizes = _sizes(row)
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": sizes["hidden"],
        "n_layer": sizes["layers"], "n_head": sizes["heads"], "n_inner": sizes["intermediate"],
        "vocab_size": sizes["vocab"], "n_positions": seq_len,
    }  # fmt: skip


def _llama(row: Row) -> dict[str, Any]:
    sizes = _sizes(row)
    found = {
        "hidden_size": sizes["hidden"], "intermediate_size": sizes["intermediate"],
        "num_hidden_layers": sizes["layers"], "num_attention_heads": sizes["heads"],
        "num_key_value_heads": whole(row, "arch.num_key_value_heads") or sizes["heads"],
        "vocab_size": sizes["vocab"], "max_position_embeddings": needed(row, "seq_len", "sequence length", MOST_TOKENS),
    }  # fmt: skip
    if field(row, "arch.n_routed_experts") is None:
        return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **found}
    width = needed(row, "arch.moe_intermediate_size", "width of an expert", 2**20)
    names = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts",
             "num_experts_per_tok")  # fmt: skip
    return {
        "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], **found,
        **{name: needed(row, f"arch.{name}", name, 2**20) for name in names},
        "moe_intermediate_size": width,
        "n_shared_experts": (whole(row, "arch.shared_expert_intermediate_size") or 0) // width,
        "first_k_dense_replace": whole(row, "arch.dense_layers") or 0,
        "n_group": _degree(row, "ep"), "topk_group": _SHARED_GROUPS,
    }  # fmt: skip
