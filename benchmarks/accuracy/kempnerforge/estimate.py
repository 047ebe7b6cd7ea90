"""Estimates of KempnerForge's runs: its model traced, FSDP2 replayed as KempnerForge wraps it."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.accuracy.kempnerforge.cases import ForgeCase
from benchmarks.accuracy.kempnerforge.model import TRANSFORMER, ForgeModel
from benchmarks.accuracy.kempnerforge.tensor import apply_tp
from benchmarks.accuracy.memory.judge import Run, Traced
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.fsdp2.rank import sharded_rank
from gpu_plan.planner.strategy.fsdp2.units import Unit, with_parameters
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.inputs.given import given_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.parallel.tensor import ranks
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Compilation, StepVariant
from gpu_plan.planner.workload.training import Attention, Optimizer, Precision, Stack, Workload

_H200 = CudaProfile(capability=(9, 0), sm_count=132)
SETTINGS = (("dtype.reduce", "float32"),)
"""kempnerforge/distributed/parallel.py: default_mp_policy."""


class ForgeFsdp(FullyShardedDataParallel):
    """FSDP2 with a unit for each block and one for all the rest (parallel.py: apply_fsdp2). Every unit is asked to be
    resharded by name, so that the last one is too (torch's _fsdp_state.py: _lazy_init)."""

    def __init__(self, case: ForgeCase) -> None:
        self._case = case

    def rank(self, context: RankContext) -> RankPlan:
        return sharded_rank(context, self._units)

    def _units(self, trace: StepTrace, reshard_after_forward: bool) -> list[Unit]:
        names = [f"{TRANSFORMER}.layers.{index}" for index in range(self._case.forge.layers)]
        units = [Unit(name=name, modules=(name,), reshard_after_forward=True) for name in (*names, TRANSFORMER)]
        return with_parameters(trace, units)


def trace_of(case: ForgeCase, variant: StepVariant, micro_batch: int) -> StepTrace:
    """The step as KempnerForge makes it, in bf16."""
    with torch.device("meta"):
        model = ForgeModel(case.forge)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    if model.compiled_parts():
        variant = replace(variant, compilation=Compilation(names=model.compiled_parts()))
    with ranks(case.forge.tensor):
        apply_tp(model.transformer, case.forge.tensor)
        return Tracer(model=model, make_batch=_batch, profile=_H200, has_sequence=True).trace(variant, micro_batch)


def _batch(model: Any, batch: int, seq_len: int) -> TrainingBatch:
    ids = torch.zeros(1, seq_len, dtype=torch.int64)
    return given_batch(model, {"tokens": ids, "labels": ids}, batch=batch)


class ForgeEstimator:
    """Judges runs; those that differ in the micro batch alone share a trace."""

    def __init__(self) -> None:
        self._traced: dict[ForgeCase, Traced] = {}

    def judge(self, case: ForgeCase, micro_batch: int) -> StepJudgement:
        """The run under the real capacity of its GPUs."""
        traced = self._traced.setdefault(case, Traced(partial(trace_of, case)))
        workload = Workload(
            seq_len=case.seq_len,
            precision=Precision("bf16"),
            optimizer=Optimizer("adamw-fused" if case.fused else "adamw"),
            attention=Attention.SDPA,
            stack=Stack.PLAIN,
            settings=SETTINGS,
        )
        run = Run(
            workload=workload,
            cluster=parse_cluster(case.cluster),
            strategy=ForgeFsdp(case),
            micro_batch=micro_batch,
            accumulation=case.accumulation,
            tensor_parallel=case.forge.tensor,
        )
        return run.judged(traced)
