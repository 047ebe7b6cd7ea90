"""Estimates of published cases, judged on the way that `plan` takes: stream, simulated allocator, verdict."""

from typing import TYPE_CHECKING, Any, cast

from benchmarks import published_lora, published_runs
from benchmarks.accuracy_cases import AnyCase, Case
from benchmarks.fsdp_qlora import QloraCase, QloraEstimator, qlora_states
from benchmarks.lit_cases import LitCase
from benchmarks.lit_estimate import LitEstimator, lit_states
from benchmarks.published_adapters import FsdpBesideAdapters, FsdpOfTheRuns, uncounted_bytes
from benchmarks.titan_cases import TitanCase
from benchmarks.titan_estimate import TitanEstimator
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.base import Strategy
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.events import StepTrace
from gpu_plan.planner.trace.variant import StepVariant
from gpu_plan.planner.workload.training import Attention, Optimizer, Stack, Workload

if TYPE_CHECKING:
    from gpu_plan.planner.trace.provider import TraceProvider


class _Declared:
    """Stands where `plan` has its provider: hands out the step as the run made it, whatever variant is asked for."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._known: list[StepTrace] = []

    def trace(self, variant: StepVariant, micro_batch: int) -> StepTrace:
        """A trace that holds at `micro_batch`."""
        for trace in self._known:
            if trace.samples[0] <= micro_batch <= trace.samples[-1]:
                return trace
        case = self._case
        if case.lora is None:
            made = published_runs.trace_of(case.setup, micro_batch)
        else:
            made = published_lora.trace_of(case.setup, dict(case.lora), micro_batch)
        self._known.append(made)
        return made


class Estimator:
    """Judges many cases; those that differ in the micro batch alone share a trace."""

    def __init__(self) -> None:
        self._providers: dict[Case, _Declared] = {}
        self._titan = TitanEstimator()
        self._lit = LitEstimator()
        self._qlora = QloraEstimator()

    def judge(self, case: AnyCase, micro_batch: int) -> StepJudgement:
        """The case under the real capacity of its GPUs."""
        if isinstance(case, TitanCase):
            return self._titan.judge(case, micro_batch)
        if isinstance(case, LitCase):
            return self._lit.judge(case, micro_batch)
        if isinstance(case, QloraCase):
            return self._qlora.judge(case, micro_batch)
        setup = case.setup
        provider: Any = self._providers.setdefault(case, _Declared(case))
        evaluator = Evaluator(
            provider=cast("TraceProvider", provider),
            workload=Workload(
                seq_len=setup.seq_len,
                precision=setup.precision,
                optimizer=Optimizer("adamw"),
                attention=Attention.FLASH,
                stack=Stack.TRAINER,
                peft=case.peft,
            ),
            cluster=parse_cluster(case.cluster),
            speed=RooflineModel(),
        )
        strategy = _strategy(case)
        family = Family(strategy=strategy, offload=Offload.NONE, checkpointing=setup.checkpointing)
        batch = Batch(micro_batch=micro_batch, accumulation_steps=1)
        return evaluator.simulate(evaluator.judge(family, batch))


def _strategy(case: Case) -> Strategy:
    """As the run's torch 2.4 had it."""
    if case.strategy != "fsdp1":
        return STRATEGIES[case.strategy]
    return FsdpBesideAdapters() if case.fuses_adapters else FsdpOfTheRuns()


def states_of(case: AnyCase, trace: StepTrace) -> int:
    """k·P/W: weights, gradients, two moments and the foreach optimizer's list; a frozen parameter its 16 bits alone."""
    if isinstance(case, TitanCase):
        return case.states(sum(p.numel for p in trace.parameters))
    if isinstance(case, LitCase):
        return lit_states(trace)
    if isinstance(case, QloraCase):
        return qlora_states(case, trace)
    setup = case.setup
    if case.lora is None:
        return setup.bytes_per_parameter * sum(p.numel for p in trace.parameters) // setup.world_size
    return sum(p.numel * (5 * 4 if p.trainable else 2) for p in trace.parameters) // setup.world_size


def uncounted_of(case: AnyCase, trace: StepTrace) -> int:
    """Bytes that stood on the device at the peak and that the run's own counting left out."""
    beside = isinstance(case, Case) and case.strategy == "fsdp1" and case.fuses_adapters
    return uncounted_bytes(trace) if beside else 0
