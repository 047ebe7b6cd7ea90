"""A rank's replayed stream, adapters and all, against real DDP and FSDP2 ranks on gloo: their allocators' own events.

What is left out, and why, stands in `tests.support.ranks.comparison`.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gpu_plan.planner.workload.training import Precision
from tests.support.distributed_reference import RankRun, run_ranks, sample_runs
from tests.support.ranks.case import RankCase
from tests.support.ranks.cases import FOUR_RANKS, REFUSED, SAMPLE, TWO_RANKS
from tests.support.ranks.comparison import differences, measured, measured_curve, replayed, replayed_curve
from tests.support.ranks.replay import STRATEGIES, context_of, stream_of

WORLDS = {2: TWO_RANKS, 4: FOUR_RANKS}
HALF_STATISTICS = ("gpt2",)
"""Layer norms keep their statistics in 16 bits on the CPU, in 32 on CUDA, whose kernels the trace follows."""


@cache
def runs(world_size: int, kind: str) -> dict[str, RankRun]:
    """All runs of one launch, by case."""
    if kind == "sample":
        return sample_runs(SAMPLE)
    cases = REFUSED if kind == "refused" else WORLDS[world_size]
    return {run.case.label(): run for run in run_ranks(cases, world_size)}


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    """References are large: they go with the module."""
    yield
    runs.cache_clear()


def compare(case: RankCase, run: RankRun) -> dict[str, int]:
    """Figures of rank 0 that differ, and the assertion that no rank takes more than it."""
    assert not run.error, run.error
    real = [measured(reference, case) for reference in run.references]
    for other in real[1:]:
        assert all(value <= 0 for value in differences(other, real[0]).values())
    return differences(replayed(stream_of(case, len(run.references)), case.micro_batch), real[0])


@pytest.mark.parametrize("case", SAMPLE, ids=RankCase.label)
def test_every_figure_equals(case: RankCase) -> None:
    """After wrapping; peak and end of every forward and backward; peak of every step; at rest: two iterations."""
    assert compare(case, runs(2, "sample")[case.label()]) == {}


@pytest.mark.parametrize("case", [c for c in SAMPLE if c.precision == Precision("fp32")], ids=RankCase.label)
def test_every_turn_of_the_curve_equals(case: RankCase) -> None:
    """All maxima and minima of live bytes, in order; in 16 bits CPU kernels take scratch of their own."""
    reference = runs(2, "sample")[case.label()].references[0]
    curve = measured_curve(reference, case.strategy)
    assert np.array_equal(replayed_curve(stream_of(case, 2), case.micro_batch), curve)
    assert len(curve) > 300


def test_uneven_rows_leave_the_last_rank_with_less() -> None:
    case = next(c for c in SAMPLE if c.strategy == "fsdp" and c.changes)
    first, last = (measured(reference, case) for reference in runs(2, "sample")[case.label()].references)
    assert first.wrapped == last.wrapped
    assert last.rests[-1] < first.rests[-1]


def test_the_comparison_can_fail() -> None:
    """Another world size, precision or accumulation does not pass for the real one."""
    case = next(c for c in SAMPLE if c.strategy == "fsdp" and c.accumulation == 2 and c.changes)
    real = measured(runs(2, "sample")[case.label()].references[0], case)
    size = case.micro_batch
    assert not differences(replayed(stream_of(case, 2), size), real)
    assert differences(replayed(stream_of(case, 4), size), real)
    assert differences(replayed(stream_of(replace(case, precision=Precision("bf16-mixed")), 2), size), real)
    assert differences(replayed(stream_of(replace(case, strategy="ddp"), 2), size), real)


def test_adapters_of_another_rank_or_trained_weights_do_not_pass() -> None:
    case = next(c for c in SAMPLE if c.strategy == "fsdp" and c.lora_rank)
    real = measured(runs(2, "sample")[case.label()].references[0], case)
    assert real.passes[1].backward_peak > real.wrapped > 100_000
    for other in (8, 0):
        assert differences(replayed(stream_of(replace(case, lora_rank=other), 2), case.micro_batch), real)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "case"),
    [pytest.param(size, case, id=f"{size} ranks, {case.label()}") for size, cases in WORLDS.items() for case in cases],
)
def test_all(world_size: int, case: RankCase) -> None:
    found = compare(case, runs(world_size, "all")[case.label()])
    if case.architecture in HALF_STATISTICS and case.precision != Precision("fp32"):
        norms, tokens = 5, case.micro_batch * case.seq_len
        assert found["pass 0 forward_end"] == norms * 2 * 2 * tokens
        assert all(0 < value <= norms * 2 * 2 * tokens for value in found.values())
        return
    assert found == {}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED, ids=RankCase.label)
def test_what_the_real_code_refuses(case: RankCase) -> None:
    run = runs(2, "refused")[case.label()]
    if case.strategy == "single":
        assert compare(case, run) == {}
    elif case.strategy == "ddp":
        assert "find_unused_parameters" in run.error
        assert any("find_unused_parameters" in note for note in STRATEGIES["ddp"].rank(context_of(case, 2)).notes)
    else:
        assert run.error.rstrip().splitlines()[-1].startswith(("ValueError", "TypeError"))
