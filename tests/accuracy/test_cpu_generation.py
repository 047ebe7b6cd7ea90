"""Traced generations against the CPU allocator's own events, on real models with random weights."""

from dataclasses import replace

import numpy as np
import pytest

from gpu_plan.planner.workload.generation import CacheKind, CacheType
from gpu_plan.planner.workload.training import Attention
from tests.support.generation_reference import (
    Generation,
    peaks_of_run,
    peaks_of_trace,
    real,
    stream_of_run,
    stream_of_trace,
    traced,
)
from tests.support.sample import sample

GENERATORS = (
    "llama-2", "llama-3", "qwen2", "gpt2", "pythia", "gemma-2", "gemma-3", "mixtral", "qwen3-moe", "olmoe",
    "deepseek-v3", "t5", "mamba", "jamba", "qwen3-next",
)  # fmt: skip
SAMPLE = ("llama-3", "gemma-3", "mixtral", "deepseek-v3", "t5", "jamba")
SAME_STREAM = ("llama-2", "llama-3", "qwen2", "gpt2", "pythia", "gemma-2", "gemma-3", "mixtral", "t5")
"""Those whose every allocation and free agrees in order; the others differ in oneDNN's and histc's transient copies."""


def both(case: Generation) -> tuple[list[int], list[int]]:
    return peaks_of_trace(traced(case)), peaks_of_run(real(case))


@pytest.mark.parametrize("name", sample(SAMPLE, kept=("llama-3", "gemma-3", "deepseek-v3", "jamba")))
def test_peaks_of_prefill_and_decode_equal(name: str) -> None:
    """Grouped queries, a window, experts, latent attention, an encoder, state-space layers."""
    replay, run = both(Generation(architecture=name))
    assert replay == run
    assert len(run) == 3
    assert run[0] > run[1] > 10_000


def test_every_allocation_and_free_in_order() -> None:
    case = Generation(architecture="llama-3")
    assert np.array_equal(stream_of_trace(traced(case)), stream_of_run(real(case)))


def test_a_cache_that_is_allocated_whole() -> None:
    replay, run = both(Generation(architecture="llama-3", cache=CacheKind.STATIC))
    assert replay == run


def test_a_cache_in_eight_bits() -> None:
    replay, run = both(Generation(architecture="llama-3", kv_dtype=CacheType.FP8))
    assert replay == run


@pytest.mark.parametrize("name", ["llama-3", "gemma-3"])
def test_a_prompt_in_pieces(name: str) -> None:
    """generation/utils.py: GenerationMixin._prefill with prefill_chunk_size; a window's cache forgets between them."""
    replay, run = both(Generation(architecture=name, prompt=40, chunks=(16, 16, 8)))
    assert replay == run
    assert len(run) == 5


@pytest.mark.parametrize("name", ["llama-3", "gemma-3", "deepseek-v3"])
def test_a_piece_does_not_know_how_the_tokens_before_it_came(name: str) -> None:
    """So that those are recorded as one."""
    case = Generation(architecture=name, prompt=72, chunks=(16, 16, 16, 16, 8))
    pieces = peaks_of_trace(traced(case))
    at_once = peaks_of_trace(traced(replace(case, chunks=(48, 16, 8))))
    assert at_once[1:] == pieces[3:]
    assert max(pieces[:3]) <= pieces[3] < at_once[0]


def test_the_comparison_can_fail() -> None:
    """The figures tell one more token, and another cache, apart."""
    case = Generation(architecture="llama-3")
    ours = peaks_of_trace(traced(case))
    assert ours != peaks_of_run(real(replace(case, prompt=41)))
    assert ours != peaks_of_trace(traced(replace(case, cache=CacheKind.STATIC)))


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("attention", [Attention.SDPA, Attention.EAGER])
@pytest.mark.parametrize(("batch", "prompt", "steps"), [(1, 40, 3), (2, 40, 3), (3, 17, 4), (2, 90, 2)])
def test_all(name: str, attention: Attention, batch: int, prompt: int, steps: int) -> None:
    case = Generation(architecture=name, attention=attention, batch=batch, prompt=prompt, steps=steps)
    replay, run = both(case)
    assert replay == run


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME_STREAM)
def test_all_streams(name: str) -> None:
    case = Generation(architecture=name)
    assert np.array_equal(stream_of_trace(traced(case)), stream_of_run(real(case)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-2", "qwen2", "gemma-2", "gemma-3", "mixtral"])
@pytest.mark.parametrize("steps", [2, 4])
def test_all_static(name: str, steps: int) -> None:
    replay, run = both(Generation(architecture=name, cache=CacheKind.STATIC, steps=steps))
    assert replay == run
