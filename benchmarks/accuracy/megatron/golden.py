"""Megatron-LM's own regression values: arguments of a case as a job, and what of them is not planned."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.accuracy.megatron import sharded
from benchmarks.accuracy.megatron.jobs import Job, peak_of_blocks, profile
from benchmarks.accuracy.megatron.others import FAMILIES, as_gpt, hybrid_not_replayed, other_of, stages_of
from benchmarks.accuracy.megatron.recorded import workspace_before
from gpu_plan.planner.megatron.architecture import Architecture, Experts, LatentAttention
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.strategy.megatron.states import StateRules

CAPABILITY = {"A100": (8, 0), "H100": (9, 0), "GB200": (10, 0)}
_GPT2_WORDS = 50257
_WORKSPACE = 8 * 4096 * 1024
"""`:4096:8`, in KiB (pytorch aten/src/ATen/cuda/CublasHandlePool.cpp: parseChosenWorkspaceSize)."""
_NOT_PLANNED = (
    "--pipeline-model-parallel-layout", "--cuda-graph-impl",
    "--export-kd-cfg", "--hybrid-override-pattern", "--recompute-modules", "--fine-grained-activation-offloading",
    "--no-rope-fusion",
)  # fmt: skip
_OP_FUSER, _UNFUSED = "--use-transformer-engine-op-fuser", ("A100", "H100")
"""Where Transformer Engine has no fused kernel for a rank's experts, it runs their operations one by one
(pytorch/ops/fused/grouped_mlp.py: is_supported, Blackwell alone)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured run."""

    id: str
    family: str
    case: str
    key: str
    gpu: str
    measured: int
    """Peak allocated bytes of the last rank."""
    job: Job | None
    sharded: bool = False
    """Whether Megatron-FSDP spreads it."""
    why: str = ""
    """What of its arguments is not planned, where it has no job."""


def rows(path: Path) -> Iterator[Row]:
    """Rows that are scored: one for each case and GPU, high confidence, the `dev` container."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        if row["preferred_of_case_and_gpu"] and row["confidence"] == "high" and "dev" in row["software"]:
            why = _not_planned(row)
            yield Row(
                id=row["id"],
                family=row["case"].split("/")[0],
                case=row["case"],
                key=row["case_key"],
                gpu=row["gpu"]["model"],
                measured=int(row["measured"]["mem_max_allocated_bytes"]["last"]),
                job=None if why else job_of(row),
                sharded=bool(row["args"].get("--use-megatron-fsdp")),
                why=why,
            )


def peaks_of(row: Row) -> tuple[int, int]:
    """The last rank's peak, as the allocator's blocks and as tensors alone."""
    assert row.job is not None
    rank = row.job.layout.pipeline - 1
    found = peak_of_blocks(row.job, rank), profile(row.job, rank).peak_allocated_bytes
    return (sharded.peak_of(row.job, found[0]), sharded.peak_of(row.job, found[1])) if row.sharded else found


def _not_planned(row: Mapping[str, Any]) -> str:
    family = row["case"].split("/")[0]
    if family not in ("gpt", "moe", *FAMILIES):
        return f"{family} models"
    if unknown := hybrid_not_replayed(row["args"]):
        return unknown
    if row["args"].get("--optimizer") not in (None, "adam", "muon"):
        return f"--optimizer {row['args']['--optimizer']}"
    if row["args"].get(_OP_FUSER) and row["gpu"]["model"] not in _UNFUSED:
        return _OP_FUSER
    return next((flag for flag in _NOT_PLANNED if row["args"].get(flag) not in (None, False)), "")


def job_of(row: Mapping[str, Any]) -> Job:
    """The job that the arguments describe (megatron/training/arguments.py for what they leave out)."""
    args, parallel = row["args"], row["parallel"]
    family = row["case"].split("/")[0]
    if family in FAMILIES:
        args = as_gpt(family, args)
    model = _architecture(args)
    expert_tensor = int(parallel["etp"] or args.get("--expert-tensor-parallel-size") or parallel["tp"])
    capability = CAPABILITY[row["gpu"]["model"]]
    world = row["gpu"]["count"]
    return Job(
        model=model,
        layout=_layout(args, parallel, capability, expert_tensor if model.experts else 1),
        rules=StateRules(
            data_parallel=world // (parallel["tp"] * parallel["pp"]),
            expert_data_parallel=max(1, world // (parallel["ep"] * expert_tensor * parallel["pp"])),
            instances=int(args.get("--num-distributed-optimizer-instances") or 1),
            distributed=bool(args.get("--use-distributed-optimizer")),
            muon=_muon(args),
            # The last rank of all is the last of its data parallel ranks.
            data_rank=world // (parallel["tp"] * parallel["pp"]) - 1,
            # arguments.py: gradients of bf16 weights are added up in fp32 if not told otherwise, of fp16 ones in fp16.
            gradient_bytes=2 if args.get("--fp16") or args.get("--grad-reduce-in-bf16") else 4,
            overlap=bool(args.get("--overlap-grad-reduce")),
            float8_stored=bool(args.get("--fp8-param-gather")),
        ),
        micro_batch=int(args["--micro-batch-size"]),
        micro_batches=int(row["num_microbatches"]),
        seq_len=int(args["--seq-length"]),
        capability=capability,
        workspace_bytes=_workspace(row, capability),
        other=other_of(family, args),
    )


def _architecture(args: Mapping[str, Any]) -> Architecture:
    heads, hidden = int(args["--num-attention-heads"]), int(args["--hidden-size"])
    gated = bool(args.get("--swiglu"))
    width = int(args.get("--ffn-hidden-size") or (int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden))
    return Architecture(
        layers=int(args["--num-layers"]),
        hidden=hidden,
        intermediate=width,
        heads=heads,
        groups=int(args.get("--num-query-groups", heads)) if args.get("--group-query-attention") else heads,
        head_dim=int(args.get("--kv-channels") or hidden // heads),
        vocabulary=int(args.get("--vocab-size") or _GPT2_WORDS),
        gated=gated,
        norm="rms" if args.get("--normalization") == "RMSNorm" else "layer",
        biases=not args.get("--disable-bias-linear"),
        tied=not args.get("--untie-embeddings-and-output-weights"),
        positions=0 if args.get("--position-embedding-type") == "rope" else int(args["--max-position-embeddings"]),
        rotary=args.get("--position-embedding-type") == "rope",
        latent=_latent(args),
        next_tokens=int(args.get("--mtp-num-layers") or 0),
        experts=_experts(args, width),
    )


def _layout(
    args: Mapping[str, Any], parallel: Mapping[str, Any], capability: tuple[int, int], expert_tensor: int
) -> Layout:
    local = args.get("--transformer-impl") == "local"
    return Layout(
        tensor=parallel["tp"],
        pipeline=parallel["pp"],
        virtual=(stages_of(args) or int(parallel["vpp"] or 1) * parallel["pp"]) // parallel["pp"],
        group=_count(args, "--microbatch-group-size-per-virtual-pipeline-stage"),
        context=parallel["cp"],
        expert=parallel["ep"],
        expert_tensor=expert_tensor,
        sequence=bool(args.get("--sequence-parallel")) and parallel["tp"] > 1,
        attention=_attention(args, local, capability),
        local=local,
        fused_gradients=not args.get("--no-gradient-accumulation-fusion"),
        cross_entropy="native" if args.get("--cross-entropy-loss-fusion") else "unfused",
        hidden_dropout=float(args.get("--hidden-dropout", 0.1)),
        attention_dropout=float(args.get("--attention-dropout", 0.1)),
        attention_mask=True,
        float8=args.get("--fp8-recipe", "delayed") if args.get("--fp8-format") else "none",
        float8_stored=bool(args.get("--fp8-param-gather")),
        float8_twice=capability < (10, 0),
        deterministic=bool(args.get("--deterministic-mode")),
        first_layers=_count(args, "--decoder-first-pipeline-num-layers"),
        last_layers=_count(args, "--decoder-last-pipeline-num-layers"),
        embedding_counts=bool(args.get("--account-for-embedding-in-pipeline-split")),
        loss_counts=bool(args.get("--account-for-loss-in-pipeline-split")),
        dispatcher=args.get("--moe-token-dispatcher-type", "allgather"),
        wide_router=args.get("--moe-router-dtype") == "fp32",
        permute_fusion=bool(args.get("--moe-permute-fusion")),
        grouped=bool(args.get("--moe-grouped-gemm")),
    )


def _latent(args: Mapping[str, Any]) -> LatentAttention | None:
    if not args.get("--multi-latent-attention"):
        return None
    return LatentAttention(
        query_rank=_count(args, "--q-lora-rank"),
        key_value_rank=int(args["--kv-lora-rank"]),
        head_dim=int(args["--qk-head-dim"]),
        rotary_dim=int(args["--qk-pos-emb-head-dim"]),
        value_dim=int(args["--v-head-dim"]),
        normed=bool(args.get("--qk-layernorm")),
    )


def _muon(args: Mapping[str, Any]) -> Literal["no", "whole", "layer_wise"]:
    if args.get("--optimizer") != "muon":
        return "no"
    return "layer_wise" if args.get("--use-distributed-optimizer") else "whole"


def _workspace(row: Mapping[str, Any], capability: tuple[int, int]) -> int | None:
    """Of a cuBLAS workspace, where the environment or the container's torch says other than what is planned with."""
    if row["args_env"].get("CUBLAS_WORKSPACE_CONFIG") == ":4096:8":
        return _WORKSPACE
    return workspace_before(row["id"], capability)


def _attention(args: Mapping[str, Any], local: bool, capability: tuple[int, int]) -> Any:
    """`auto`: cuDNN's kernels from Hopper on, deterministic ones on Hopper alone, else flash attention
    (transformer_engine/pytorch/attention/dot_product_attention/utils.py: get_attention_backend)."""
    if local:
        return "local"
    asked = args.get("--attention-backend", "auto")
    if asked != "auto":
        return asked
    deterministic_fused = capability < (10, 0) or not args.get("--deterministic-mode")
    return "fused" if capability >= (9, 0) and deterministic_fused else "flash"


def _count(args: Mapping[str, Any], flag: str) -> int | None:
    return int(args[flag]) if args.get(flag) else None


def _experts(args: Mapping[str, Any], width: int) -> Experts | None:
    if not args.get("--num-experts"):
        return None
    return Experts(
        count=int(args["--num-experts"]),
        chosen=int(args.get("--moe-router-topk", 2)),
        width=int(args.get("--moe-ffn-hidden-size") or width),
        shared_width=int(args.get("--moe-shared-expert-intermediate-size") or 0),
        first_softmax=bool(args.get("--moe-router-pre-softmax")),
        score=args.get("--moe-router-score-function", "softmax"),
        biased=bool(args.get("--moe-router-enable-expert-bias")),
        groups=int(args.get("--moe-router-num-groups") or 0),
        chosen_groups=int(args.get("--moe-router-group-topk") or 0),
        scale=float(args["--moe-router-topk-scaling-factor"]) if args.get("--moe-router-topk-scaling-factor") else None,
        balance=_balance(args),
    )


def _balance(args: Mapping[str, Any]) -> Any:
    """An auxiliary loss with the coefficient 0 is none."""
    kind = args.get("--moe-router-load-balancing-type", "aux_loss")
    return kind if kind == "sinkhorn" or float(args.get("--moe-aux-loss-coeff") or 0) else "none"
