"""Estimates of litgpt's runs: its model traced, on one device."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.accuracy.litgpt.cases import LitCase
from benchmarks.accuracy.litgpt.model import LitModel
from benchmarks.accuracy.memory.judge import Run, Traced
from gpu_plan.planner.dtypes import element_bits
from gpu_plan.planner.hardware.cluster import Cluster, parse_cluster
from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.strategy.base import RankContext, RankPlan
from gpu_plan.planner.strategy.kinds.single import Single
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.inputs.batch import TrainingBatch
from gpu_plan.planner.trace.inputs.given import given_batch
from gpu_plan.planner.trace.kernels.temporaries import kernel_profile
from gpu_plan.planner.trace.tracer import Tracer
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Attention, Optimizer, Precision, Stack, Workload


class FirstPass(Single):
    """One device until the first optimizer step: nothing of a pass before is held yet."""

    def rank(self, context: RankContext) -> RankPlan:
        plan = super().rank(context)
        return replace(plan, stream=until_step(plan.stream))


def until_step(stream: RankStream) -> RankStream:
    """The events before the first optimizer step."""
    before = stream.event_segment < stream.step_segments[0]
    return replace(
        stream,
        event_sign=stream.event_sign[before],
        event_tensor=stream.event_tensor[before],
        event_segment=stream.event_segment[before],
        event_in_backward=stream.event_in_backward[before],
    )


def trace_of(case: LitCase, cluster: Cluster, variant: StepVariant, micro_batch: int) -> StepTrace:
    """The step as litgpt makes it, in 16 bits."""
    with torch.device("meta"):
        model = LitModel(case.lit, case.seq_len)

    def batch(model: Any, batch: int, seq_len: int) -> TrainingBatch:
        ids = torch.zeros(1, seq_len, dtype=torch.int64)
        return given_batch(model, {"tokens": ids, "labels": ids}, batch=batch)

    profile = kernel_profile(device_kind(cluster.gpu))
    return Tracer(model=model, make_batch=batch, profile=profile, has_sequence=True).trace(variant, micro_batch)


class LitEstimator:
    """Judges runs; those that differ in the micro batch alone share a trace."""

    def __init__(self) -> None:
        self._traced: dict[LitCase, Traced] = {}

    def judge(self, case: LitCase, micro_batch: int) -> StepJudgement:
        """The run under the real capacity of its GPU."""
        cluster = parse_cluster(case.cluster)
        traced = self._traced.setdefault(case, Traced(partial(trace_of, case, cluster)))
        workload = Workload(
            seq_len=case.seq_len,
            precision=Precision("bf16"),
            optimizer=_optimizer(case),
            attention=Attention.SDPA,
            stack=Stack.PLAIN,
            clipping=False,
        )
        strategy = FirstPass() if case.longest_first else Single()
        return Run(
            workload=workload,
            cluster=cluster,
            strategy=strategy,
            micro_batch=micro_batch,
            accumulation=case.accumulation,
        ).judged(traced)


def _optimizer(case: LitCase) -> Optimizer:
    """finetune/lora.py has bitsandbytes' PagedAdamW beside its 4-bit layers: tensors of 1e5 elements and more keep
    their state in managed memory. The 8-bit optimizer, paged by the same rule, stands in for it."""
    return Optimizer("paged-adamw-8bit") if case.lit.quantised else Optimizer("adamw")


def lit_states(trace: StepTrace) -> int:
    """Weights as they are stored; gradients and two moments in 16 bits for what is trained."""
    weights = sum(p.numel * element_bits(p.dtype) // 8 for p in trace.parameters)
    return weights + sum(6 * p.numel for p in trace.parameters if p.trainable)
