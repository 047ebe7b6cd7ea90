"""Runs of Megatron-LM on eight B200 (SimuMax's measurements): every rank's peak.

As docs/b200/b200_real_repro_guide.md of SimuMax 4dcaae513b says: context parallel ranks exchange heads for tokens
(`cp_comm_type=a2a`), and torch is 2.10.0a0 of NVIDIA's container 26.01, which is older than the larger cuBLAS workspace
on Blackwell.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.accuracy.megatron.jobs import Job
from benchmarks.accuracy.megatron.recorded import WORKSPACE_BEFORE
from gpu_plan.planner.megatron.architecture import Architecture, Experts, LatentAttention
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.strategy.megatron.states import StateRules

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run; `measured` holds each pipeline rank's peaks in bytes, one for each of its ranks."""

    id: str
    case: str
    measured: tuple[tuple[float, ...], ...]
    job: Job


def runs(path: Path) -> Iterator[Run]:
    """All of them."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        by_rank = {int(rank): mib * _MIB for rank, mib in row["measured"]["by_rank_allocated_mib"].items()}
        stages, each = row["parallel"]["pp"], len(by_rank) // row["parallel"]["pp"]
        # Pipeline ranks are the outermost: with two, the first half of the ranks are the first stage.
        measured = tuple(tuple(by_rank[stage * each + rank] for rank in range(each)) for stage in range(stages))
        job = _with_experts(row) if "n_routed_experts" in row["arch"] else _job(row)
        yield Run(id=row["id"], case=row["case"], measured=measured, job=job)


def _job(row: Mapping[str, Any]) -> Job:
    arch, parallel = row["arch"], row["parallel"]
    heads = arch["num_attention_heads"]
    return Job(
        model=Architecture(
            layers=arch["num_hidden_layers"],
            hidden=arch["hidden_size"],
            intermediate=arch["intermediate_size"],
            heads=heads,
            groups=arch["num_key_value_heads"],
            head_dim=arch["hidden_size"] // heads,
            vocabulary=arch["vocab_size"],
        ),
        layout=Layout(
            tensor=parallel["tp"],
            pipeline=parallel["pp"],
            context=parallel["cp"],
            context_comm="a2a",
            sequence=parallel["tp"] > 1,
            cross_entropy="te",
            attention="flash",
        ),
        rules=StateRules(
            data_parallel=parallel["dp"] * parallel["cp"], expert_data_parallel=parallel["dp"] * parallel["cp"]
        ),
        micro_batch=row["micro_batch_per_gpu"],
        micro_batches=row["num_microbatches"],
        seq_len=row["seq_len"],
        capability=(10, 0),
        workspace_bytes=WORKSPACE_BEFORE,
    )


def _with_experts(row: Mapping[str, Any]) -> Job:
    """DeepSeek-V2's layers as SimuMax launched them (simu_tools/megatron_scripts/scripts/run_pretrain_deepseekv2.sh):
    as many groups of experts as expert parallel ranks, three of them chosen; capacity 1 with padding.

    Transformer Engine's flash attention has no kernel for keys that are wider than values: cuDNN's runs.
    """
    arch, parallel = row["arch"], row["parallel"]
    ranks = parallel["dp"] * parallel["cp"]
    return Job(
        model=Architecture(
            layers=arch["num_hidden_layers"],
            hidden=arch["hidden_size"],
            intermediate=arch["intermediate_size"],
            heads=arch["num_attention_heads"],
            groups=arch["num_attention_heads"],
            head_dim=arch["qk_nope_head_dim"] + arch["qk_rope_head_dim"],
            vocabulary=arch["vocab_size"],
            latent=LatentAttention(
                query_rank=arch["q_lora_rank"],
                key_value_rank=arch["kv_lora_rank"],
                head_dim=arch["qk_nope_head_dim"],
                rotary_dim=arch["qk_rope_head_dim"],
                value_dim=arch["v_head_dim"],
            ),
            experts=Experts(
                count=arch["n_routed_experts"],
                chosen=arch["num_experts_per_tok"],
                width=arch["moe_intermediate_size"],
                shared_width=arch["shared_expert_intermediate_size"],
                dense_layers=arch["dense_layers"],
                first_softmax=True,
                groups=parallel["ep"],
                chosen_groups=3,
                scale=16.0,
                balance="seq_aux_loss",
            ),
        ),
        layout=Layout(
            tensor=parallel["tp"],
            pipeline=parallel["pp"],
            expert=parallel["ep"],
            sequence=parallel["tp"] > 1,
            cross_entropy="te",
            attention="fused",
            capacity=1.0,
        ),
        rules=StateRules(data_parallel=ranks, expert_data_parallel=ranks * parallel["tp"] // parallel["ep"]),
        micro_batch=row["micro_batch_per_gpu"],
        micro_batches=row["num_microbatches"],
        seq_len=row["seq_len"],
        capability=(10, 0),
        workspace_bytes=WORKSPACE_BEFORE,
    )
