"""Every rank's replayed stream against real DeepSpeed ZeRO-1, 2 and 3 ranks on gloo, from their allocators' own events.

What is left out, and why, stands in `tests.support.ranks.comparison` and `tests.support.ranks.zero_loop`. Offload is
not compared: on a CPU the host's buffers come from the same allocator.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from gpu_plan.planner.workload.training import Checkpointing, Precision
from tests.support.distributed_reference import RankRun, run_ranks, sample_runs
from tests.support.ranks.case import RankCase
from tests.support.ranks.comparison import differences, measured, replayed
from tests.support.ranks.zero_cases import ADAPTED, FOUR_RANKS, QLORA, SAMPLE, TWO_RANKS
from tests.support.ranks.zero_replay import highest, shown_peak, streams_of

LAUNCHES = {"sample": (SAMPLE, 2), "two": (TWO_RANKS, 2), "four": (FOUR_RANKS, 4)}
HALF_STATISTICS = 5 * 2 * 2
"""Bytes per token of GPT-2's five layer norms, which keep two statistics in 16 bits on the CPU, in 32 on CUDA."""


@cache
def runs(launch: str) -> dict[str, RankRun]:
    """All runs of one launch, by case."""
    if launch == "sample":
        return sample_runs(SAMPLE)
    cases, world_size = LAUNCHES[launch]
    return {run.case.label(): run for run in run_ranks(cases, world_size)}


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    """References are large: they go with the module."""
    yield
    runs.cache_clear()
    run_of.cache_clear()


@cache
def run_of(launch: str, label: str) -> RankRun:
    """A case's run. One that differs is run again by itself: a thread of gloo that is kept from the processor can hold
    a tensor for longer than the collective; a difference that is DeepSpeed's or ours is there again.
    """
    run = runs(launch)[label]
    if not run.error and not any(differing(run)):
        return run
    return run_ranks([run.case], LAUNCHES[launch][1])[0]


def differing(run: RankRun) -> list[dict[str, int]]:
    """Figures that differ, by rank."""
    case = run.case
    assert not run.error, run.error
    real = [measured(reference, case) for reference in run.references]
    streams = streams_of(case, len(real))
    return [
        differences(replayed(stream, case.micro_batch), figures) for stream, figures in zip(streams, real, strict=True)
    ]


def compare(launch: str, case: RankCase) -> list[dict[str, int]]:
    """Figures that differ, by rank."""
    return differing(run_of(launch, case.label()))


@pytest.mark.parametrize("case", SAMPLE, ids=RankCase.label)
def test_every_figure_of_every_rank_equals(case: RankCase) -> None:
    """After wrapping; peak and end of every forward and backward; peak of every step; at rest: two iterations."""
    assert compare("sample", case) == [{}, {}]


@pytest.mark.parametrize("case", SAMPLE, ids=RankCase.label)
def test_the_rank_shown_is_the_one_that_stands_highest(case: RankCase) -> None:
    references = run_of("sample", case.label()).references
    assert shown_peak(case, 2) == highest([measured(reference, case) for reference in references])


def test_the_rank_that_reaches_into_most_is_not_always_the_worst() -> None:
    """Rank 1 of the mixture of experts: it owns what comes first in backward."""
    case = next(c for c in SAMPLE if c.architecture == "mixtral" and c.strategy == "zero2")
    first, last = (highest([measured(r, case)]) for r in run_of("sample", case.label()).references)
    assert last > first


def test_the_comparison_can_fail() -> None:
    case = next(c for c in SAMPLE if c.strategy == "zero3" and c.accumulation == 2)
    real = measured(run_of("sample", case.label()).references[0], case)
    assert not differences(replayed(streams_of(case, 2)[0], case.micro_batch), real)
    others = (
        replace(case, strategy="zero2"),
        replace(case, precision=Precision("bf16-mixed")),
        replace(case, settings={**case.settings, "zero.reduce_bucket_size": "60000"}),
        replace(case, settings={**case.settings, "zero.param_persistence_threshold": "0"}),
    )
    for other in others:
        assert differences(replayed(streams_of(other, 2)[0], other.micro_batch), real), other.label()
    assert differences(replayed(streams_of(case, 4)[0], case.micro_batch), real)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*QLORA, *ADAPTED], ids=RankCase.label)
def test_frozen_bases_and_adapters_equal_in_every_figure(case: RankCase) -> None:
    """Frozen layers keep their inputs, adapters stay in fp32 beside a 16-bit base, packed weights stay gathered."""
    assert differing(run_ranks([case], 2)[0]) == [{}, {}]


@pytest.mark.slow
@pytest.mark.parametrize("case", [*ADAPTED, QLORA[0], QLORA[2]], ids=RankCase.label)
def test_full_checkpointing_of_a_frozen_base_equals_in_every_figure(case: RankCase) -> None:
    """A frozen embedding is gathered again when backward ends, where its output requires a gradient; what else is
    frozen stays from its recomputation until the module is done whose backward asked for it."""
    assert differing(run_ranks([replace(case, checkpointing=Checkpointing.FULL)], 2)[0]) == [{}, {}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launch", "case"),
    [pytest.param(name, case, id=f"{name}, {case.label()}") for name in ("two", "four") for case in LAUNCHES[name][0]],
)
def test_all(launch: str, case: RankCase) -> None:
    found = compare(launch, case)
    if case.architecture == "gpt2" and case.precision != Precision("fp32"):
        tokens = case.micro_batch * case.seq_len
        assert all(0 < value <= HALF_STATISTICS * tokens for rank in found for value in rank.values())
        assert all(rank["pass 0 forward_end"] == HALF_STATISTICS * tokens for rank in found)
        return
    assert found == [{}] * len(found)
