"""Estimates of torchtitan's runs: its model traced, FSDP2 replayed as torchtitan wraps it."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.accuracy.memory.judge import Run, Traced
from benchmarks.accuracy.torchtitan.cases import TitanCase
from benchmarks.accuracy.torchtitan.model import TitanModel
from benchmarks.accuracy.torchtitan.tensor import apply_tp, as_one_of
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.fsdp2.rank import sharded_rank
from gpu_plan.planner.strategy.fsdp2.units import ROOT, Unit, with_parameters
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.inputs.given import given_batch
from gpu_plan.planner.trace.kernels.temporaries import CudaProfile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import Compilation, StepVariant
from gpu_plan.planner.workload.training import Optimizer, Precision, Stack, Workload

_H100 = CudaProfile(capability=(9, 0), sm_count=132)
_SETTINGS = (("dtype.reduce", "float32"),)
"""job_config.training.mixed_precision_reduce."""
_GROWING = ("alloc.expandable_segments", "true")


class TitanFsdp(FullyShardedDataParallel):
    """FSDP2 with a unit for each block and one for all the rest (parallelize_llama.py: apply_fsdp)."""

    def __init__(self, case: TitanCase) -> None:
        self._case = case

    def rank(self, context: RankContext) -> RankPlan:
        return sharded_rank(context, self._units)

    def _units(self, trace: StepTrace, reshard_after_forward: bool) -> list[Unit]:
        blocks = [f"layers.{index}" for index in range(self._case.titan.layers)]
        if self._case.wrapped == "ends":
            return with_parameters(trace, _with_ends(blocks))
        kept = {"default": blocks[-1:], "always": [], "never": blocks}[self._case.reshard]
        units = [Unit(name=name, modules=(name,), reshard_after_forward=name not in kept) for name in blocks]
        return with_parameters(trace, [*units, Unit(name=ROOT, modules=(ROOT,), reshard_after_forward=False)])


def _with_ends(blocks: list[str]) -> list[Unit]:
    """Every block is resharded, what comes after the last one is not (apply_fsdp, `default`)."""
    alone = [Unit(name=name, modules=(name,), reshard_after_forward=True) for name in ("tok_embeddings", *blocks)]
    tail = Unit(name="tail", modules=("norm", "output"), reshard_after_forward=False)
    return [*alone, tail, Unit(name=ROOT, modules=(ROOT,), reshard_after_forward=False)]


def trace_of(case: TitanCase, variant: StepVariant, micro_batch: int) -> StepTrace:
    """The step as torchtitan makes it; FSDP2 gives the blocks 16-bit weights."""
    with torch.device("meta"):
        model = TitanModel(case.titan)
    if case.titan.float8:
        from benchmarks.accuracy.torchtitan.float8 import convert  # torchao says at length what it cannot load

        convert(model, case.titan.float8, checkpointed=case.titan.recompute != "none")
    if case.titan.float8 == "tensorwise":
        variant = replace(variant, regime=replace(variant.regime, float8="cast"))
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    if model.compiled_parts():
        variant = replace(variant, compilation=Compilation(names=model.compiled_parts()))
    with as_one_of(case.titan.tensor):
        apply_tp(model, case.titan.tensor)
        return Tracer(model=model, make_batch=_batch, profile=_H100, has_sequence=True).trace(variant, micro_batch)


def _batch(model: Any, batch: int, seq_len: int) -> TrainingBatch:
    ids = torch.zeros(1, seq_len, dtype=torch.int64)
    return given_batch(model, {"tokens": ids, "labels": ids}, batch=batch)


class TitanEstimator:
    """Judges runs; those that differ in the micro batch alone share a trace."""

    def __init__(self) -> None:
        self._traced: dict[TitanCase, Traced] = {}

    def judge(self, case: TitanCase, micro_batch: int) -> StepJudgement:
        """The run under the real capacity of its GPUs."""
        traced = self._traced.setdefault(case, Traced(partial(trace_of, case)))
        workload = Workload(
            seq_len=case.seq_len,
            precision=Precision("bf16-mixed"),
            optimizer=Optimizer("adamw"),
            attention=case.attention,
            stack=Stack.PLAIN,
            settings=(_GROWING, *_SETTINGS) if case.expandable else _SETTINGS,
        )
        run = Run(
            workload=workload,
            cluster=parse_cluster(case.cluster),
            strategy=TitanFsdp(case),
            micro_batch=micro_batch,
            tensor_parallel=case.titan.tensor,
        )
        return run.judged(traced)
