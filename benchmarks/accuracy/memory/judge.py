"""A run judged on the way that `plan` takes: stream, simulated allocator, verdict."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.overheads import NCCL_VERSION
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.base import Strategy
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.sizes.ranges import ranges_for
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Checkpointing, Workload

Make = Callable[[StepVariant, int], StepTrace]
"""Traces a step of so many samples."""


@dataclass(slots=True)
class Traced:
    """Stands where `plan` has its provider: hands out the step as the run made it."""

    make: Make
    known: dict[tuple[int, ...], StepTrace] = field(default_factory=dict)

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """A trace that holds at `micro_batch`."""
        for points in ranges_for(micro_batch):
            if points in self.known:
                return self.known[points]
        made = self.make(variant, micro_batch)
        self.known[made.samples] = made
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run in the planner's words."""

    workload: Workload
    cluster: Cluster
    strategy: Strategy
    checkpointing: Checkpointing = Checkpointing.NONE
    micro_batch: int
    accumulation: int = 1
    tensor_parallel: int = 1
    nccl_version: tuple[int, int] = NCCL_VERSION

    def judged(self, traced: Traced) -> StepJudgement:
        """Under the real capacity of its GPUs."""
        evaluator = Evaluator(
            provider=cast("Any", traced),
            workload=self.workload,
            cluster=self.cluster,
            speed=RooflineModel(),
            nccl_version=self.nccl_version,
        )
        family = Family(
            strategy=self.strategy,
            offload=Offload.NONE,
            checkpointing=self.checkpointing,
            tensor_parallel=self.tensor_parallel,
        )
        batch = Batch(micro_batch=self.micro_batch, accumulation_steps=self.accumulation)
        return evaluator.simulate(evaluator.judge(family, batch))
