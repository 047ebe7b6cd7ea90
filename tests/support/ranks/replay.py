"""The planner's stream of one rank for a case, under the CPU kernel profile."""

from dataclasses import replace

import torch
from torch import nn

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.model.adapt import adapt
from gpu_plan.planner.model.adapter import Adapter
from gpu_plan.planner.model.build.construct import build_model
from gpu_plan.planner.model.build.specs import spec_of
from gpu_plan.planner.model.family import has_sequence
from gpu_plan.planner.strategy.base import RankContext, Strategy
from gpu_plan.planner.strategy.kinds.ddp import DistributedDataParallel
from gpu_plan.planner.strategy.kinds.experts.fsdp_ep import ShardedExpertParallel
from gpu_plan.planner.strategy.kinds.experts.hsdp_ep import HybridShardedExpertParallel
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.strategy.kinds.fsdp1 import FullyShardedDataParallel1
from gpu_plan.planner.strategy.kinds.fsdp_tp import ShardedTensorParallel
from gpu_plan.planner.strategy.kinds.hsdp import HybridShardedDataParallel
from gpu_plan.planner.strategy.kinds.hsdp_tp import HybridShardedTensorParallel
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.strategy.kinds.tp import TensorParallel
from gpu_plan.planner.strategy.kinds.zero1 import Zero1
from gpu_plan.planner.strategy.kinds.zero2 import Zero2
from gpu_plan.planner.strategy.kinds.zero3 import Zero3
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch, training_batch
from gpu_plan.planner.trace.kernels.temporaries import CpuProfile
from gpu_plan.planner.trace.parallel.tensor import ranks
from gpu_plan.planner.trace.session import take_part
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Regime, StepVariant
from gpu_plan.planner.workload.optimizers.registry import DEFAULT_OPTIMIZER
from gpu_plan.planner.workload.precisions import PLAIN_PRECISION
from gpu_plan.planner.workload.training import Peft, Stack
from tests.support.once import once
from tests.support.ranks.case import RankCase

STRATEGIES: dict[str, Strategy] = {
    "single": Single(),
    "ddp": DistributedDataParallel(),
    "fsdp": FullyShardedDataParallel(),
    "fsdp1": FullyShardedDataParallel1(),
    "hsdp": HybridShardedDataParallel(),
    "zero1": Zero1(),
    "zero2": Zero2(),
    "zero3": Zero3(),
    "tp": TensorParallel(),
    "fsdp_tp": ShardedTensorParallel(),
    "hsdp_tp": HybridShardedTensorParallel(),
    "fsdp_ep": ShardedExpertParallel(),
    "hsdp_ep": HybridShardedExpertParallel(),
}


def _batch(model: nn.Module, micro_batch: int, seq_len: int) -> TrainingBatch:
    return training_batch(model, batch=micro_batch, seq_len=seq_len)


def _peft(case: RankCase) -> Peft:
    if not case.lora_rank:
        return Peft("none")
    return Peft("qlora") if case.quantised else Peft("lora")


def _stack(case: RankCase) -> Stack:
    """Who prepares forward; the loop itself is a plain one."""
    if case.cuts_sequence:
        return Stack.TORCHTITAN
    return Stack.ACCELERATE if case.autocast else Stack.PLAIN


def trace_of(case: RankCase, rank: int = 0) -> StepTrace:
    """The step in the types in which the strategy computes, every block traced."""
    return traced_as(case, STRATEGIES[case.strategy].regime(case.precision, _stack(case), _peft(case)), rank)


def traced_as(case: RankCase, regime: Regime, rank: int = 0) -> StepTrace:
    """The same under a given regime."""
    alike = replace(
        case,
        strategy="",
        precision=PLAIN_PRECISION,
        optimizer=DEFAULT_OPTIMIZER,
        accumulation=1,
        layers=(),
        settings={},
    )
    return _traced(alike, case.stored, regime, rank)


@once(32)
def _traced(case: RankCase, stored: str, regime: Regime, rank: int) -> StepTrace:
    """The same for all cases that a trace does not tell apart."""
    with ranks(max(case.tensor_parallel, case.expert_parallel), rank % case.tensor_parallel):
        return _trace(case, stored, regime, rank)


def _trace(case: RankCase, stored: str, regime: Regime, rank: int) -> StepTrace:
    model = build_model(
        case.config,
        attention=case.attention.value,
        dtype=getattr(torch, stored),
    )
    base = model
    if case.lora_rank:
        adapter = Adapter(peft=_peft(case), rank=case.lora_rank, targets=tuple(case.lora_targets), compute_dtype=stored)
        model = adapt(base, spec_of(base, model_id="tiny"), adapter).model
    variant = StepVariant(
        regime=regime,
        checkpointing=case.checkpointing,
        attention=case.attention,
        stack=Stack.TORCHTITAN if case.cuts_sequence else Stack.PLAIN,
        seq_len=case.seq_len,
        tensor_parallel=case.tensor_parallel,
        expert_parallel=case.expert_parallel,
        rank=rank % case.tensor_parallel,
        crowded=case.crowded,
    )
    take_part(model, variant)
    tracer = Tracer(
        model=model,
        make_batch=lambda _, micro_batch, seq_len: _batch(base, micro_batch, seq_len),
        profile=CpuProfile(threads=1),
        has_sequence=has_sequence(base),
        fold=False,
    )
    return tracer.trace(variant, case.micro_batch)


def context_of(case: RankCase, world_size: int, rank: int = 0) -> RankContext:
    """What the strategy is asked."""
    return RankContext(
        trace=trace_of(case, rank),
        precision=case.precision,
        optimizer=case.optimizer,
        stack=_stack(case),
        clipping=False,
        checkpointing=case.checkpointing,
        accumulation_steps=case.accumulation,
        world_size=1 if case.strategy == "single" else world_size,
        capability=None,
        peft=_peft(case),
        replicate=case.replicas,
        tensor_parallel=case.tensor_parallel,
        expert_parallel=case.expert_parallel,
        place=rank % (world_size // case.replicas),
        settings=tuple(case.settings.items()),
    )


def stream_of(case: RankCase, world_size: int, rank: int = 0) -> RankStream:
    """What the strategy says that a rank goes through."""
    return STRATEGIES[case.strategy].rank(context_of(case, world_size, rank)).stream
