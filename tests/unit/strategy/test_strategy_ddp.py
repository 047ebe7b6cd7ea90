"""DDP: buckets on top of a replica."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_plan.planner.memory.stream.rank import RankStream
from gpu_plan.planner.strategy.buckets import BUCKET, FIRST_BUCKET, in_buckets
from gpu_plan.planner.strategy.kinds.ddp import DistributedDataParallel
from gpu_plan.planner.strategy.kinds.single import Single
from tests.support.live_bytes import at_load, at_rest, labelled
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace

SHAPES = [(400_000,), (7,), (100_000,), (300_000,)]
TRACE = tiny_trace(SHAPES, element_bytes=4)
NUMEL = 800_007


def test_buckets_stand_beside_a_replica() -> None:
    alone = Single().rank(small_context(TRACE, world_size=1)).stream
    stream = DistributedDataParallel().rank(small_context(TRACE)).stream
    assert at_load(stream) == at_load(alone) + 4 * NUMEL
    assert [ours - single for ours, single in zip(at_rest(stream), at_rest(alone), strict=True)] == [4 * NUMEL] * 2


def test_one_bucket_until_the_second_iteration_rebuilds_them() -> None:
    plan = DistributedDataParallel().rank(small_context(TRACE))
    # Gradients come last parameter first; the first bucket closes at 1 MiB.
    first, rest = 4 * 300_000, 4 * (100_000 + 7 + 400_000)
    second = plan.stream.step_segments[0] + 1
    assert labelled(plan.stream, "DDP bucket") == [
        (0, 1, 4 * NUMEL),
        (second, -1, 4 * NUMEL),
        (second, 1, first),
        (second, 1, rest),
    ]
    assert [(c.kind, c.bytes, c.per) for c in plan.collectives] == [
        ("all_reduce", first, "step"),
        ("all_reduce", rest, "step"),
    ]


def standing_gradients(stream: RankStream) -> list[int]:
    """Bytes of gradients that each iteration's first optimizer event finds."""
    gradient = np.tile(TRACE.tensor_parameter >= 0, stream.num_passes)
    own = np.zeros(len(stream.fixed) - len(gradient), dtype=bool)
    sizes = np.where(np.concatenate([gradient, own]), stream.requested(1), 0)
    live = np.cumsum(stream.event_sign * sizes[stream.event_tensor])
    return [int(live[np.searchsorted(stream.event_segment, segment) - 1]) for segment in stream.step_segments]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_gradients_that_are_views_of_the_buckets_do_not_stand(accumulation: int) -> None:
    context = small_context(TRACE, accumulation_steps=accumulation)
    views = replace(context, settings=(("ddp.gradient_as_bucket_view", "true"),))
    apart, joined = (DistributedDataParallel().rank(each) for each in (context, views))
    assert standing_gradients(apart.stream) == [4 * NUMEL] * 2
    assert standing_gradients(joined.stream) == [0, 0]
    assert at_rest(joined.stream) == at_rest(apart.stream)
    assert labelled(joined.stream, "DDP bucket") == labelled(apart.stream, "DDP bucket")
    (note,) = joined.notes
    assert "gradient_as_bucket_view=True" in note


def test_without_synchronisation_views_wait_for_the_last_micro_step() -> None:
    settings = (("ddp.gradient_as_bucket_view", "true"),)
    stream = DistributedDataParallel().rank(small_context(TRACE, accumulation_steps=2, settings=settings)).stream
    gradient = np.tile(TRACE.tensor_parameter >= 0, stream.num_passes)
    freed = stream.event_tensor[stream.event_sign < 0]
    freed_gradients = [int(tensor) for tensor in freed if tensor < len(gradient) and gradient[tensor]]
    assert len(freed_gradients) == len(set(freed_gradients)) == 4 * len(SHAPES)


def test_parameters_without_gradient_are_told() -> None:
    trace = tiny_trace(SHAPES, element_bytes=4, frozen=[1, 2])
    assert DistributedDataParallel().rank(small_context(trace)).notes == ()
    unused = [replace(parameter, trainable=True) for parameter in trace.parameters]
    (note,) = DistributedDataParallel().rank(small_context(replace(trace, parameters=unused))).notes
    assert note == "DDP needs find_unused_parameters=True: m1.weight and 1 more get no gradient"


@given(st.lists(st.integers(1, 40 * 1024 * 1024), min_size=1, max_size=40))
def test_buckets_close_once_they_are_full(sizes: list[int]) -> None:
    buckets = [sum(bucket) for bucket in in_buckets(sizes)]
    assert sum(buckets) == sum(sizes)
    limits = [FIRST_BUCKET, *[BUCKET] * len(buckets)]
    for bucket, limit in zip(buckets[:-1], limits, strict=False):
        assert limit <= bucket < limit + max(sizes)


def test_one_device_is_refused() -> None:
    assert "only one" in str(DistributedDataParallel().refuses(small_context(TRACE, world_size=1)))
