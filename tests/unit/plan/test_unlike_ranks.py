"""Which ranks are alike, by what is cut, and the words for those that are not."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.plan.document import Candidate, CrowdedFigures, RankFigures, from_json, to_json
from gpu_plan.planner.plan.figures import AtPeak
from gpu_plan.planner.search.training.ranks.crowded import _borne
from gpu_plan.planner.search.training.unlike.places import held_elements, runs, shard_kinds, tensor_places
from gpu_plan.planner.strategy.fsdp2.units import rows_of, shard
from gpu_plan.planner.trace.events import ParameterInfo
from gpu_plan.planner.units import GIB
from gpu_plan.reports.plan.added.rank_words import alike_words, crowded_lines, rank_rows
from gpu_plan.reports.plots.stages import memory_by_rank
from tests.support.plan_example import llama_on_8xh100
from tests.support.rank_contexts import small_context
from tests.support.tiny_trace import tiny_trace


def parameter(*shape: int) -> ParameterInfo:
    return ParameterInfo(name="weight", shape=shape, dtype="float32", trainable=True, module="m")


@pytest.mark.parametrize(("rows", "ranks", "held"), [(10, 4, [3, 3, 3, 1]), (3, 4, [1, 1, 1, 0]), (9, 4, [3, 3, 3, 0])])
def test_rows_go_to_the_first_ranks(rows: int, ranks: int, held: list[int]) -> None:
    assert [rows_of(rows, ranks, place) for place in range(ranks)] == held


def test_a_late_rank_stores_padding_that_the_optimizer_never_sees() -> None:
    last = shard(parameter(10, 8), 4, 3)
    assert (last.shard_numel, last.held_numel, last.unsharded_numel) == (24, 8, 96)


def test_ranks_with_equal_shards_are_one_kind() -> None:
    even = small_context(tiny_trace(((8, 4), (16, 4))))
    assert shard_kinds(even, (0,), 4) == [(0, 1, 2, 3)]
    odd = small_context(tiny_trace(((10, 4), (16, 4))))
    kinds = {kind: held_elements(replace(odd, place=kind[0])) for kind in shard_kinds(odd, (0,), 4)}
    assert kinds == {(0, 1, 2): 3 * 4 + 4 * 4, (3,): 1 * 4 + 4 * 4}


def test_ranks_of_a_copy_hold_what_a_plan_can_cut() -> None:
    """A vocabulary of 259 over two ranks; a width that both share evenly tells none apart."""
    whole = (ParameterSpec(name="w0", shape=(259, 8), dtype="float32", trainable=True),)
    spec = ModelSpec(
        id="m", class_name="M", config_class=None, model_type=None, kind="dense", parameters=whole,
        num_parameters=2072, trainable_parameters=2072, max_positions=None, vocab_size=259, hidden_size=8,
        has_sequence=True,
    )  # fmt: skip
    trace = tiny_trace(((130, 8),))
    trace = replace(trace, parameters=[replace(trace.parameters[0], name="w0")])
    assert tensor_places(spec, trace, 2) == {0: (0,), 1: (1,)}
    even = replace(spec, parameters=(replace(whole[0], shape=(260, 8)),))
    assert tensor_places(even, trace, 2) == {0: (0, 1)}


def test_runs_of_neighbours() -> None:
    assert runs([0, 1, 2, 5, 7, 8]) == ((0, 2), (5, 5), (7, 8))


def test_a_rank_bears_more_tokens_up_to_its_memory() -> None:
    assert _borne(8.0, 700, 700) == 8.0
    assert _borne(8.0, 700, 100) == 2.0
    assert _borne(8.0, 700, -5) == 1.0
    assert _borne(8.0, -3, -5) == 8.0


def told(**changes: Any) -> Candidate:
    """The example's best plan with two kinds of rank."""
    best = llama_on_8xh100().plans[0]
    kinds = tuple(
        RankFigures(
            ranks=ranks, replicas=1, parameters=held, peak_allocated_bytes=size, device_used_bytes=size + GIB,
            phase_of_peak="backward", at_peak=AtPeak(parameters=size),
        )
        for ranks, held, size in ((((0, 6),), 1000, 10 * GIB), (((7, 7),), 900, 9 * GIB))
    )  # fmt: skip
    return replace(best, ranks=kinds, **changes)


def test_ranks_that_differ_have_a_row_each_and_a_bar() -> None:
    rows = rank_rows(told())
    assert [(row[0], row[1], row[2], row[4]) for row in rows] == [
        ("0-6", "7", "1,000", "10.0"),
        ("7", "1", "900", "9.0"),
    ]
    (axes,) = memory_by_rank(told()).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["7 × rank 0", "1 × rank 7"]


def test_ranks_that_are_alike_have_a_sentence() -> None:
    alike = replace(told(), ranks=told().ranks[:1])
    assert rank_rows(alike) == []
    assert alike_words(alike) == "all 7 ranks take as much"


@pytest.mark.parametrize(
    ("borne", "words"),
    [
        (4.0, "it fits"),
        (1.0, "there is no room for more than its share"),
        (2.5, "there is room for 2.50 times its share"),
    ],
)
def test_a_crowded_rank_is_one_sentence(borne: float, words: str) -> None:
    crowded = CrowdedFigures(
        most_times=4.0, borne_times=borne, peak_allocated_bytes=20 * GIB, device_used_bytes=21 * GIB, step_seconds=9.0
    )
    ((said,),) = crowded_lines(told(crowded=crowded))
    assert "4 times its share" in said
    assert "21.0 GiB instead of" in said
    assert said.endswith(words)


def test_a_document_keeps_both() -> None:
    crowded = CrowdedFigures(
        most_times=4.0, borne_times=4.0, peak_allocated_bytes=1, device_used_bytes=1, step_seconds=9.0
    )
    document = llama_on_8xh100()
    whole = replace(document, plans=(told(crowded=crowded), *document.plans[1:]))
    assert from_json(to_json(whole), "here").plans[0] == whole.plans[0]
