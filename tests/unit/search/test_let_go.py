"""What a change of a job took is let go when it is told, and what is surely too large is not laid out."""

import gc
import weakref
from dataclasses import replace
from unittest.mock import patch

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.stream.traced import allocations, least_peaks
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.training.candidates import Batch, Family
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.search.training.least.alone import step_overflows, weights_overflow
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.registry import STRATEGIES
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Checkpointing, Workload


def task(model: str = "meta-llama/Llama-3.2-1B", gpus: str = "2x8xH100") -> TrainingTask:
    cluster, source = parse_cluster(gpus), resolve(model)
    provider = TraceProvider(source=source, device=device_kind(cluster.gpu), attention="sdpa", use_cache=False)
    return TrainingTask(
        Evaluator(provider=provider, workload=Workload(), cluster=cluster, speed=RooflineModel(), config=source.config)
    )


def with_room(one: TrainingTask, capacity: int) -> TrainingTask:
    """The same job where so many bytes of each device are free."""
    reserve = one.evaluator.cluster.capacity_bytes - capacity
    return one.other(Workload(settings=(("memory.reserve", str(reserve)),)))


def families(one: TrainingTask) -> list[Family]:
    return [
        family
        for family in one.families()
        if family.copy_ranks == 1 and family.pipeline is None and one.refusal(family) is None
    ]


@pytest.mark.parametrize("micro_batch", [1, 2, 16])
def test_no_rank_takes_less_than_its_step_and_its_weights(micro_batch: int) -> None:
    one = task()
    batch = Batch(micro_batch=micro_batch, accumulation_steps=1)
    known = families(one)
    assert {family.strategy.name for family in known} >= {"ddp", "fsdp", "hsdp", "zero1", "zero2", "zero3"}
    assert {family.offload for family in known} >= {Offload.NONE, Offload.OPTIMIZER, Offload.ALL}
    for family in known:
        judged = one.evaluator.judge(family, batch)
        least = least_peaks(judged.stream.trace)(micro_batch)
        assert 0 < least <= judged.profile.peak_allocated_bytes
        for capacity in (judged.profile.peak_allocated_bytes, 3 * 2**30, 2**29):
            small = with_room(one, capacity)
            if step_overflows(small.evaluator, family, batch):
                assert small.evaluator.judge(family, batch).verdict == "no"
            if weights_overflow(small.evaluator, family):
                assert small.evaluator.judge_states(family, batch).verdict == "no"


def test_what_stands_nowhere_on_the_device_is_no_bound() -> None:
    one = task()
    small = with_room(one, 2**20)
    plain = Family(strategy=STRATEGIES["zero3"], offload=Offload.NONE, checkpointing=Checkpointing.NONE)
    assert weights_overflow(small.evaluator, plain)
    assert not weights_overflow(small.evaluator, replace(plain, offload=Offload.ALL))


def test_a_change_that_is_told_leaves_nothing_though_no_garbage_is_collected() -> None:
    one = task()
    gc.collect()
    gc.disable()
    try:
        other = one.other(replace(Workload(), grad_accum=4))
        best = other.fits_best(families(other)[0])
        assert best is not None
        evaluator = other.evaluator
        sizes = [weakref.ref(plan.stream.fixed) for plan in evaluator._plans.values()]
        assert sizes
        other.forget()
        del best, other
        assert all(one() is None for one in sizes)
    finally:
        gc.enable()
    assert evaluator.config, "what was given stays"


def test_fits_best_is_what_exploring_finds() -> None:
    one, other = task(), task()
    for family in families(one):
        best = one.explore(family, exhaustive=False).best
        mine = other.fits_best(family)
        if best is None or best.verdict != "fits":
            assert mine is None
        else:
            assert mine is not None
            assert (mine.batch, mine.simulated) == (best.batch, best.simulated)


def test_traces_of_one_book_share_what_is_equal() -> None:
    provider = task().evaluator.provider
    assert isinstance(provider, TraceProvider)
    plain = Family(strategy=STRATEGIES["fsdp"], offload=Offload.NONE, checkpointing=Checkpointing.NONE)
    variant = task().evaluator.variant(plain)
    first, second = provider.trace(variant, 2), provider.trace(variant, 1)
    assert first.parameters == second.parameters
    if first.num_events == second.num_events and (first.kind == second.kind).all():
        assert first.kind is second.kind
    if first.kind is second.kind and first.subject is second.subject:
        assert allocations(first)[0] is allocations(second)[0]


def test_a_provider_that_takes_what_another_read_opens_no_book() -> None:
    mine = task().evaluator.provider
    assert isinstance(mine, TraceProvider)
    plain = Family(strategy=STRATEGIES["fsdp"], offload=Offload.NONE, checkpointing=Checkpointing.NONE)
    variant = task().evaluator.variant(plain)
    trace = mine.trace(variant, 2)
    other = replace(mine, _traces={}, _told={}, _asked={}, _static={}, _shipped_traces=False)
    other.takes(mine)
    with patch("gpu_plan.planner.trace.provider.find_shipped", side_effect=AssertionError):
        assert other.trace(variant, 2) is trace
        assert other.static_trace(variant.regime) is mine.static_trace(variant.regime)
    told = mine.assumptions()
    other.close()
    mine.close()
    assert not mine._traces
    assert mine.assumptions() == told
