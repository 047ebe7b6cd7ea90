"""What a rank keeps at least of rows that do not divide its shards."""

import pytest

from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.search.training.candidates import Family
from gpu_plan.planner.search.training.evaluate import Evaluator
from gpu_plan.planner.search.training.least.rows import cut_of, least_shape
from gpu_plan.planner.search.training.task import TrainingTask
from gpu_plan.planner.speed.roofline import RooflineModel
from gpu_plan.planner.strategy.fsdp2.units import shard
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.events import ParameterInfo, StepTrace
from gpu_plan.planner.trace.provider import TraceProvider
from gpu_plan.planner.workload.training import Precision, Workload


def task_of(gpus: str) -> TrainingTask:
    source, cluster = resolve("mistralai/Mixtral-8x7B-v0.1"), parse_cluster(gpus)
    provider = TraceProvider(source=source, device=device_kind(cluster.gpu), attention="sdpa")
    workload = Workload(seq_len=4096, precision=Precision("bf16-mixed"))
    evaluator = Evaluator(
        provider=provider, workload=workload, cluster=cluster, speed=RooflineModel(), config=source.config
    )
    return TrainingTask(evaluator)


def static(task: TrainingTask, family: Family) -> StepTrace:
    return task.evaluator.provider.static_trace(task.evaluator.variant(family).regime)


def named(task: TrainingTask, title: str) -> Family:
    return next(one for one in task.families() if one.title == title)


@pytest.mark.parametrize(
    ("shape", "shards", "degree", "least"),
    [
        ((8, 28672, 4096), 16, 2, 8 * 28672 * 4096 // 16),  # half an expert, where the shards alone give a whole one
        ((8, 28672, 4096), 64, 8, 28672 * 4096 // 8),  # one of eight shards, one of eight parts of its columns
        ((8, 28672, 4096), 64, 2, 28672 * 4096 // 2),  # 32 shards of eight experts still hold one
        ((4096, 14336), 16, 2, 4096 * 14336 // 16),  # divides
        ((4097, 1024), 4096, 2, 3 * 512),  # 3 rows of 2,048 shards, half of their columns; 2 whole rows of 4,096
        ((4096,), 8192, 2, 1),  # a vector has rows alone
        ((8, 4096), 16, 3, 4096),  # no such ranks
    ],
)
def test_the_other_dimension_may_be_cut(shape: tuple[int, ...], shards: int, degree: int, least: int) -> None:
    found = least_shape(shape, shards, degree)
    one = ParameterInfo(name="w", shape=found, dtype="float32", trainable=True, module="m")
    assert shard(one, shards).shard_numel == least
    assert len(found) == len(shape)


def test_what_divides_is_no_less() -> None:
    task = task_of("2x8xH100")
    alone = named(task, "FSDP2")
    cut = cut_of(task.evaluator, alone, 2)
    assert cut.is_less
    assert 0.5 < cut.stepped < 0.52, "of sixteen shards eight experts leave half, the rest of the model is all of it"
    assert not cut_of(task_of("8xH100").evaluator, alone, 2).is_less


def test_half_an_expert_fits_where_a_whole_one_does_not() -> None:
    """Of 131,072 GPUs sixteen hold a copy: eight experts give eight of them one each, or sixteen half of one."""
    task = task_of("16384x8xH100")
    shared, whole = named(task, "HSDP × TP 2 of 8192 replicas"), named(task, "HSDP × EP 2 of 8192 replicas")
    batch = task.cuts_of(shared)[0]
    parameters = sum(one.numel for one in static(task, shared).parameters)
    least = task.bounds.states(shared, batch)
    assert parameters * 12 // 16 < least < parameters * 16 // 16 * 1.05
    assert task.bounds.states(whole, task.cuts_of(whole)[0]) > task.evaluator.capacity_bytes > least
