"""Layouts of Megatron-core that nobody asked for."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.megatron.layout import Layout
from gpu_plan.planner.search.training.candidates import divides, first_batches
from gpu_plan.planner.search.training.least.megatron import _shares_tokens
from gpu_plan.planner.search.training.megatron.unasked import several
from gpu_plan.planner.strategy.megatron.layouts import layouts
from gpu_plan.planner.workload.training import Checkpointing, Precision, Workload

WORKLOAD = Workload(seq_len=4096, precision=Precision("bf16-mixed"))


def _of(layers: int, **given: Any) -> Any:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 4,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    }  # fmt: skip
    provider = SimpleNamespace(spec=lambda: SimpleNamespace(id="a/b"))
    return SimpleNamespace(workload=replace(WORKLOAD, **given), config=config, provider=provider)


@pytest.mark.parametrize(
    ("layers", "pipeline", "found"),
    [(80, 4, (5,)), (80, 8, (2,)), (32, 8, (2,)), (32, 32, ()), (32, 1, ()), (126, 16, (2,)), (12, 4, (3,))],
)
def test_stages_on_each_rank_keep_four_layers_where_there_are_as_many(layers, pipeline, found):
    assert several(_of(layers), Layout(pipeline=pipeline)) == found


def test_what_was_said_of_stages_stands():
    assert several(_of(80, virtual_stages=2), Layout(pipeline=4, virtual=2)) == ()
    assert several(_of(80, schedule="1f1b"), Layout(pipeline=4)) == ()
    assert several(_of(80), Layout(pipeline=4, first_layers=18)) == ()


def test_tokens_are_shared_out_within_a_node_and_unasked_where_nothing_else_fits():
    found = list(layouts(WORKLOAD, parse_cluster("2x8xH100"), Checkpointing.NONE))
    assert {one.context for one in found} == {1, 2, 4, 8}
    assert all(one.tensor * one.context <= 8 for one in found if one.context > 1)
    given = layouts(replace(WORKLOAD, context_parallel=2), parse_cluster("2x8xH100"), Checkpointing.NONE)
    assert {one.context for one in given} == {2}
    assert _shares_tokens(WORKLOAD, Layout(context=2), []) is None


def test_a_batch_smaller_than_the_cluster_is_shared_by_copies_of_several_ranks():
    small = replace(WORKLOAD, strategy="megatron", global_batch=16)

    def cuts(workload, *others):
        found = first_batches(workload, 32, 1, 1, lambda: others)
        return [(one.micro_batch, one.accumulation_steps) for one in found]

    assert cuts(small, 1, 2, 4) == [(1, 1)]
    assert cuts(replace(small, strategy=None), 4, 1) == [(1, 2), (2, 1)]
    assert cuts(replace(small, global_batch=24), 1, 2, 4) == [(1, 3), (3, 1)]
    assert [divides(small, 32 // ranks) for ranks in (1, 2, 8)] == [False, True, True]
    assert not divides(replace(small, micro_batch=4), 8)
    for other, ranks in (
        (replace(small, strategy="zero3"), [1]),
        (replace(small, strategy=None, global_batch=24), [1, 2, 4]),
        (replace(small, strategy=None, micro_batch=3), [1, 2, 4]),
    ):
        with pytest.raises(UsageError, match="does not divide over 32"):
            cuts(other, *ranks)
