"""The front that a search gives is that of all its candidates simulated one by one: small spaces of a real model.

With a global batch the space is finite: every family, every way to cut the batch.
"""

from itertools import chain, product
from pathlib import Path

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.front import axes, front
from gpu_plan.planner.search.ranking.rules import Ranking
from gpu_plan.planner.search.search import search
from gpu_plan.planner.search.task import Rejected
from gpu_plan.planner.search.training.evaluate import Evaluator, StepJudgement
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Attention, Optimizer, Precision, Stack, Workload

pytestmark = pytest.mark.slow
"""Building and tracing take seconds; test_ranking.py holds the same of spaces that are made up."""
MODEL = str(Path(__file__).parents[2] / "examples" / "tiny-llama")
GPUS = ("1xT4", "2xT4", "4x3090", "8xH100", "2x8xA100")
JOBS = (("adamw", 8, False), ("adamw", 12, True), ("sgd", 16, True), ("adamw-8bit", 6, True))
SPACES = [(gpus, *job) for gpus, job in product(GPUS, JOBS)]
"""Twenty: GPUs, optimizer, samples of a step and rank, and whether devices are so small that half of what fits a whole
one does not."""


def provider_of(gpus: str) -> TraceProvider:
    return TraceProvider(source=resolve(MODEL), device=device_kind(parse_cluster(gpus).gpu), attention="sdpa")


def task_of(provider: TraceProvider, gpus: str, optimizer: str, share: int, reserve: int = 0) -> TrainingTask:
    """The job, with nothing given but what stands in its space; `reserve`: bytes of each device kept for others."""
    cluster = parse_cluster(gpus)
    workload = Workload(
        seq_len=128,
        precision=Precision("bf16-mixed" if cluster.gpu.supports_bf16 else "fp16-mixed"),
        optimizer=Optimizer(optimizer),
        attention=Attention.SDPA,
        stack=Stack.ACCELERATE,
        global_batch=share * cluster.world_size,
        settings=(("memory.reserve", str(reserve)),),
    )
    return TrainingTask(Evaluator(provider=provider, workload=workload, cluster=cluster, speed=RooflineModel()))


def by_force(task: TrainingTask) -> list[StepJudgement]:
    """Every candidate that fits, each simulated."""
    known: list[StepJudgement] = []
    failed: list[Rejected[StepJudgement]] = []
    larger: list[StepJudgement] = []
    for family in chain(task.families(), task.finer(Ranking(), known, failed, larger)):
        if task.refusal(family) is not None or task.hopeless(family, Ranking(), known) is not None:
            continue
        every = [task.evaluator.simulate(task.evaluator.judge(family, batch)) for batch in task.cuts_of(family)]
        every = [exact for exact in every if exact.failure_reason is None]
        fitting = [exact for exact in every if exact.verdict == "fits"]
        tight = [exact for exact in every if exact.device_verdict == "tight"]
        known += fitting or sorted(tight, key=lambda exact: -exact.samples_per_second)[:1]
        larger += [exact for exact in every if fitting and exact.device_verdict != "fits"]
        failed += [Rejected(judgement=exact, reason="") for exact in every[:1] if not fitting and not tight]
    return [exact for exact in known if exact.verdict == "fits"]


def compared(gpus: str, optimizer: str, share: int, small: bool) -> int:
    """Asserts that both fronts are the same; gives how many candidates of the space fit."""
    provider = provider_of(gpus)
    task = task_of(provider, gpus, optimizer, share)
    every = by_force(task)
    if small:
        used = sorted(one.high_bytes for one in every)
        reserve = task.evaluator.capacity_bytes - used[len(used) // 2]
        task = task_of(provider, gpus, optimizer, share, reserve)
        whole, every = every, by_force(task)
        # Settings that nobody asked for are tried where all that is plain does not fit as well.
        assert 0 < sum(not one.tuned for one in every) < sum(not one.tuned for one in whole)
    found = search(task)
    assert {axes(found.plans[place]) for place in found.front} == {axes(every[place]) for place in front(every)}
    return len(every)


def test_a_front_is_that_of_every_candidate_simulated() -> None:
    assert compared("1xT4", "adamw", 4, True) > 1


@pytest.mark.parametrize("space", SPACES, ids=lambda space: "-".join(map(str, space)))
def test_fronts_of_twenty_spaces_are_those_of_every_candidate_simulated(space: tuple[str, str, int, bool]) -> None:
    compared(*space)
