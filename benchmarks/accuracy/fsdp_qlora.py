"""Runs of AnswerDotAI's fsdp_qlora: transformers' Llama with peft's adapters under FSDP1, wrapped by hand.

Mirrored from AnswerDotAI/fsdp_qlora train.py (fsdp_main, get_wrapping_policy) as of its benchmarks of March 2024: all
in bf16, adapters too; FSDP with neither mixed precision nor accelerate around it; blocks and adapters as units; blocks
checkpointed inside their units; `output` and `loss` dropped at the end of every batch; no clipping. transformers 4.38
upcasts the logits; bitsandbytes before 0.44 keeps the input of a 4-bit product.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from benchmarks.accuracy.memory.judge import Run, Traced
from benchmarks.accuracy.memory.rules import checkpoints, strategy_of
from benchmarks.accuracy.row import Row, SetAside, needed, text
from benchmarks.accuracy.trainer import kernels
from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.model import linear4bit
from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.source.resolve import ModelSource
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.fsdp1 import rank as fsdp1
from gpu_plan.planner.strategy.kinds.fsdp1 import FullyShardedDataParallel1
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.events import Kind, StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import kernel_profile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.adapters import NO_ADAPTERS
from gpu_plan.planner.workload.training import Attention, Checkpointing, Optimizer, Peft, Precision, Stack, Workload

_MOST_TOKENS, _MOST_RANK = 2**17, 4096
_TARGETS = ("k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj")


def _regime(peft: Peft) -> Regime:
    """All weights in bf16. With LoRA the script casts the whole model, buffers too; a quantised one is made in fp32."""
    return Regime(weights="bfloat16", trainable_weights="bfloat16", buffers_follow=peft == Peft("lora"))


@dataclass(frozen=True, slots=True, kw_only=True)
class QloraCase:
    """One row as it ran."""

    model: str
    config: str
    """The model's config as JSON."""
    seq_len: int
    rank: int
    peft: Peft
    cluster: str
    """As `--gpus` takes it."""
    strategy: str = "fsdp1"

    @property
    def kernels(self) -> str:
        return f"{self.peft} of rank {self.rank}, nothing around FSDP"


def qlora_case_of(row: Row, source: ModelSource, cluster: Cluster) -> QloraCase:
    """SetAside where the script's way to run is not mirrored."""
    if strategy_of(row) != "fsdp1":
        raise SetAside("FSDP1's FULL_SHARD alone is mirrored of fsdp_qlora")
    if (source.config or {}).get("model_type") not in ("llama", "mistral"):
        raise SetAside(f"fsdp_qlora with {source.id} is not mirrored: Llama and Mistral are")
    if not checkpoints(row):
        raise SetAside("fsdp_qlora without checkpointing is not mirrored")
    if text(row, "quantization") not in ("", "bnb-nf4"):
        raise SetAside(f"fsdp_qlora's {text(row, 'quantization')} is not mirrored")
    return QloraCase(
        model=source.id,
        config=json.dumps(source.config, sort_keys=True),
        seq_len=needed(row, "seq_len", "sequence length", _MOST_TOKENS),
        rank=needed(row, "lora.rank", "rank of the adapters", _MOST_RANK),
        peft=Peft("qlora") if text(row, "quantization") else Peft("lora"),
        cluster=cluster.spec,
    )


class BareFsdp(FullyShardedDataParallel1):
    """FSDP1 over a model that is 16-bit through and through."""

    def regime(self, precision: Precision, stack: Stack, peft: Peft = NO_ADAPTERS) -> Regime:
        return _regime(peft)

    def refuses(self, context: RankContext) -> str | None:
        with _everywhere():
            return super().refuses(context)

    def rank(self, context: RankContext) -> RankPlan:
        with _everywhere():
            return super().rank(context)


@contextlib.contextmanager
def _everywhere() -> Iterator[None]:
    with mock.patch.object(fsdp1, "_regime_of", lambda context: _regime(context.peft)):
        yield


class _KeepsInput(linear4bit.MatMul4BitMeta):
    """autograd/_functions.py: MatMul4Bit of bitsandbytes 0.43."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, layer: linear4bit.Linear4bitMeta) -> torch.Tensor:
        ctx.kept = x if ctx.needs_input_grad[0] else None
        return _FORWARD(ctx, x, bias, layer)


_FORWARD = linear4bit.MatMul4BitMeta.forward


def trace_of(case: QloraCase, variant: StepVariant, micro_batch: int) -> StepTrace:
    """The step as the script makes it; what it bound is gone before the next one."""
    base: Any = build_model(json.loads(case.config), attention="sdpa")
    kernels.use_reentrant_checkpointing(base)
    base.enable_input_require_grads()
    use_tables_per_layer(base)
    adapter = Adapter(
        peft=case.peft, rank=case.rank, targets=_TARGETS, dropout=0.1, double_quant=True, compute_dtype="bfloat16"
    )
    model = adapt(base, spec_of(base, model_id=case.model), adapter).model

    def batch(_: nn.Module, micro: int, seq_len: int) -> TrainingBatch:
        return training_batch(base, batch=micro, seq_len=seq_len)

    profile = kernel_profile(device_kind(parse_cluster(case.cluster).gpu))
    tracer = Tracer(model=model, make_batch=batch, profile=profile, has_sequence=True)
    with mock.patch.object(linear4bit, "MatMul4BitMeta", _KeepsInput):
        return dropped(tracer.trace(replace(variant, loss="transformers-4.45"), micro_batch))


def use_tables_per_layer(model: Any) -> None:
    """transformers 4.38 models/llama/modeling_llama.py: every attention's LlamaRotaryEmbedding keeps cosines and sines
    of all positions (_cos_cached, _sin_cached)."""
    config = model.config
    shape = (config.max_position_embeddings, config.hidden_size // config.num_attention_heads)
    for layer in model.model.layers:
        for name in ("_cos_cached", "_sin_cached"):
            layer.self_attn.register_buffer(name, torch.empty(shape, device="meta"), persistent=False)


def dropped(trace: StepTrace) -> StepTrace:
    """Nothing of a step but its gradients outlives it."""
    alive = np.zeros(trace.num_tensors, dtype=np.int64)
    np.add.at(alive, trace.subject[trace.kind == Kind.ALLOC], 1)
    np.add.at(alive, trace.subject[trace.kind == Kind.FREE], -1)
    left = np.flatnonzero((alive > 0) & (trace.tensor_parameter < 0))
    kind = np.concatenate([trace.kind, np.full(len(left), Kind.FREE, dtype=trace.kind.dtype)])
    return replace(trace, kind=kind, subject=np.concatenate([trace.subject, left.astype(trace.subject.dtype)]))


class QloraEstimator:
    """Judges runs."""

    def __init__(self) -> None:
        self._traced: dict[QloraCase, Traced] = {}

    def judge(self, case: QloraCase, micro_batch: int) -> StepJudgement:
        """The run under the real capacity of its GPUs."""
        traced = self._traced.setdefault(case, Traced(partial(trace_of, case)))
        workload = Workload(
            seq_len=case.seq_len,
            precision=Precision("bf16"),
            optimizer=Optimizer("adamw"),
            attention=Attention.SDPA,
            stack=Stack.PLAIN,
            peft=case.peft,
            clipping=False,
        )
        run = Run(
            workload=workload,
            cluster=parse_cluster(case.cluster),
            strategy=BareFsdp(),
            checkpointing=Checkpointing.FULL,
            micro_batch=micro_batch,
        )
        return run.judged(traced)


def qlora_states(case: QloraCase, trace: StepTrace) -> int:
    """Weights as they are stored; gradients, two moments and the foreach list in 16 bits for what is trained."""
    ranks = parse_cluster(case.cluster).world_size
    weights = sum(p.numel * element_bits("bfloat16" if p.dtype != "uint8" else p.dtype) // 8 for p in trace.parameters)
    return (weights + sum(8 * p.numel for p in trace.parameters if p.trainable)) // ranks
