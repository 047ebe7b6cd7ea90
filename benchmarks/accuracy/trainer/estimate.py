"""Estimates of the Trainer's runs."""

from functools import partial

from benchmarks.accuracy.memory.judge import Run, Traced
from benchmarks.accuracy.trainer.setup import Setup
from benchmarks.accuracy.trainer.step import trace_of
from benchmarks.accuracy.trainer.strategies import regime_of, strategy_of
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.search.training.evaluate import StepJudgement
from gpu_plan.planner.strategy.base import Strategy
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Stack, Workload


class TrainerEstimator:
    """Judges runs; those that differ in the micro batch alone share a trace."""

    def __init__(self) -> None:
        self._traced: dict[Setup, Traced] = {}

    def judge(self, setup: Setup, micro_batch: int) -> StepJudgement:
        """The run under the real capacity of its GPUs."""
        strategy = strategy_of(setup)
        traced = self._traced.setdefault(setup, Traced(partial(_made, setup, strategy)))
        workload = Workload(
            seq_len=setup.seq_len,
            precision=setup.precision,
            optimizer=Optimizer(setup.optimizer),
            attention=setup.attention,
            stack=Stack.TRAINER,
            peft=setup.peft,
        )
        run = Run(
            workload=workload,
            cluster=parse_cluster(setup.cluster),
            strategy=strategy,
            checkpointing=Checkpointing.FULL if setup.checkpointing else Checkpointing.NONE,
            micro_batch=micro_batch,
            nccl_version=setup.nccl_version,
        )
        return run.judged(traced)


def _made(setup: Setup, strategy: Strategy, variant: StepVariant, micro_batch: int) -> StepTrace:
    return trace_of(setup, regime_of(setup, strategy), micro_batch)


def trainer_states(setup: Setup, trace: StepTrace) -> int:
    """k·P/W: weights, gradients, two moments and the foreach optimizer's list; a frozen parameter its 16 bits alone."""
    world = parse_cluster(setup.cluster).world_size
    if setup.lora is not None:
        return sum(p.numel * (5 * 4 if p.trainable else 2) for p in trace.parameters) // world
    each = 4 if setup.precision.is_mixed or setup.weights == "float32" else 2
    return 5 * each * sum(p.numel for p in trace.parameters) // world


def uncounted_bytes(setup: Setup, trace: StepTrace) -> int:
    """What stood on the device at the peak and the run's own counting left out: fms-acceleration moves the fused
    adapters to the device between the stages that the Trainer's memory tracker counts."""
    if setup.strategy != "fsdp1" or not setup.fuses_adapters:
        return 0
    return 4 * sum(p.numel for p in trace.parameters if p.trainable)
