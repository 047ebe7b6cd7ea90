"""HSDP against FSDP2 of one replica's size, and the words that ask for it."""

from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.memory.profile import measure
from gpu_plan.planner.options.training.reading import read_given
from gpu_plan.planner.search.training.candidates import families
from gpu_plan.planner.strategy.base import RankContext
from gpu_plan.planner.strategy.kinds.fsdp import FullyShardedDataParallel
from gpu_plan.planner.strategy.kinds.hsdp import HybridShardedDataParallel
from gpu_plan.planner.workload.training import Checkpointing, Optimizer, Precision, Stack, Workload
from tests.support.tiny_trace import tiny_trace

SHAPES = ((1024, 512), (4096, 512), (4096, 512), (4096, 512), (1024, 512))
P = sum(int(np.prod(shape)) for shape in SHAPES)


def context(**changes: object) -> RankContext:
    trace = tiny_trace(SHAPES)
    trace = replace(trace, layout=replace(trace.layout, blocks=["m1", "m2", "m3"]))
    base = RankContext(
        trace=trace,
        precision=Precision("bf16-mixed"),
        optimizer=Optimizer("adamw-fused"),
        stack=Stack.ACCELERATE,
        clipping=True,
        checkpointing=Checkpointing.NONE,
        accumulation_steps=1,
        world_size=16,
        capability=None,
        replicate=2,
        nodes=2,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_rests_on_what_one_replica_shards() -> None:
    hybrid = measure(HybridShardedDataParallel().rank(context()).stream, 1)
    inside = measure(FullyShardedDataParallel().rank(context(world_size=8, replicate=1, nodes=1)).stream, 1)
    assert hybrid.at_rest_bytes == inside.at_rest_bytes
    assert hybrid.at_rest_bytes == pytest.approx(12 * P / 8, abs=64 * 512)


def _largest_after_backward(context_: RankContext) -> int:
    """Bytes that stand when the last gradient has been reduced, before backward's callback lets go."""
    stream = HybridShardedDataParallel().rank(context_).stream
    label = "reduce-scatter output"
    first = len(stream.fixed) - len(stream.labels)
    live = np.zeros(len(stream.fixed), dtype=np.int64)
    most = 0
    for tensor, sign in zip(stream.event_tensor, stream.event_sign, strict=True):
        live[tensor] += sign
        if tensor >= first and stream.labels[tensor - first] == label:
            ours = [t for t in range(first, len(live)) if live[t] and stream.labels[t - first] == label]
            most = max(most, int(stream.fixed[ours].sum()))
    return most


def test_all_reduced_shards_of_all_groups_stand_until_backward_ends() -> None:
    assert _largest_after_backward(context()) == 2 * P // 8


def test_without_replicas_one_stands_at_a_time() -> None:
    alone = context(world_size=8, replicate=1, nodes=1)
    assert _largest_after_backward(alone) == 2 * max(int(np.prod(shape)) for shape in SHAPES) // 8


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("precision", [Precision("bf16-mixed"), Precision("bf16")])
def test_everything_taken_is_given_back(steps: int, precision: Precision) -> None:
    stream = HybridShardedDataParallel().rank(context(accumulation_steps=steps, precision=precision)).stream
    live = stream.live(1)
    ends = [int((stream.event_segment <= segment).sum()) - 1 for segment in stream.step_segments]
    assert live.min() >= 0
    assert live[ends[0]] == live[ends[1]]


def test_replicas_sum_their_shards_across_nodes() -> None:
    sums = [c for c in HybridShardedDataParallel().rank(context()).collectives if c.kind == "all_reduce"]
    assert sum(c.bytes for c in sums) == 2 * P // 8
    assert {(c.ranks, c.across_nodes) for c in sums} == {(2, True)}
    gathers = [c for c in HybridShardedDataParallel().rank(context()).collectives if c.kind == "all_gather"]
    assert {c.ranks for c in gathers} == {8}


def test_refusals_name_the_reason() -> None:
    strategy = HybridShardedDataParallel()
    assert "--dp-replicate" in str(strategy.refuses(context(replicate=1, nodes=1, world_size=8)))
    assert "ddp" in str(strategy.refuses(context(replicate=16)))
    assert "DTensor" in str(strategy.refuses(context(optimizer=Optimizer("adamw-8bit"))))
    assert strategy.refuses(context()) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"strategy": "hsdp", "dp-replicate": "1"}, "use --strategy fsdp"),
        ({"strategy": "ddp", "dp-replicate": "2"}, "needs --strategy hsdp"),
        ({"dp-replicate": "0"}, "positive integer"),
    ],
)
def test_words_that_contradict_are_refused(words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_given(words, ())


@pytest.mark.parametrize(("spec", "tried"), [("8xH100", False), ("2x8xH100", True)])
def test_the_search_tries_it_across_nodes_only_and_never_fsdp1(spec: str, tried: bool) -> None:
    names = {family.strategy.name for family in families(Workload(), parse_cluster(spec), True)}
    assert ("hsdp" in names) is tried
    assert "fsdp1" not in names
