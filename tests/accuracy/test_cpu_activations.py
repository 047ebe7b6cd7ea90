"""Traced bytes against the CPU allocator's own events, on real models with random weights."""

from dataclasses import replace

import pytest

from gpu_plan.planner.workload.training import Attention, Checkpointing, Stack
from tests.accuracy.architectures import ARCHITECTURES
from tests.accuracy.cases import Case, reference_of, trace_of
from tests.support.replay_cpu import Figures, measured, replayed, replayed_second, same_stream
from tests.support.sample import sample

SAMPLE = ("llama-3", "gpt2", "mixtral", "t5", "vit", "qwen3-next")
"""A decoder of each kind, an encoder-decoder, a vision model and one with state; `test_all` has all of them."""
STATE_SPACE = ("mamba", "jamba", "qwen3-next")
SAME_STREAM = ("llama-2", "llama-3", "qwen2", "gpt2", "pythia", "gemma-2", "gemma-3", "mixtral", "esm-2", "t5")
"""Those whose every allocation and free agrees in order; the others differ in oneDNN's copies and order."""


def both(case: Case) -> tuple[Figures, Figures]:
    return replayed(trace_of(case), case.micro_batch), measured(reference_of(case))


@pytest.mark.parametrize("name", sample(SAMPLE, kept=["gpt2", "mixtral", "vit"]))
def test_peak_and_held_bytes_equal(name: str) -> None:
    replay, real = both(Case(architecture=name))
    assert replay == real
    assert real.peak > real.forward_end > 100_000


@pytest.mark.parametrize("name", ["llama-3", "mixtral", "t5"])
def test_every_allocation_and_free_in_order(name: str) -> None:
    case = Case(architecture=name)
    assert same_stream(trace_of(case, fold=False), case.micro_batch, reference_of(case))


@pytest.mark.parametrize("name", sample(["llama-3", "bert", "mixtral"], kept=["bert", "mixtral"]))
def test_checkpointing_changes_both_alike(name: str) -> None:
    plain, checkpointed = Case(architecture=name), Case(architecture=name, checkpointing=Checkpointing.FULL)
    replay, real = both(checkpointed)
    assert replay == real
    assert real.forward_end < measured(reference_of(plain)).forward_end


@pytest.mark.parametrize("name", sample(["llama-3", "gpt2"], kept=["llama-3"]))
def test_doubling_the_sequence(name: str) -> None:
    short, double = both(Case(architecture=name)), both(Case(architecture=name, seq_len=96))
    assert double[0].peak - short[0].peak == double[1].peak - short[1].peak > 0
    assert double[0].forward_end - short[0].forward_end == double[1].forward_end - short[1].forward_end


def test_changing_the_vocabulary() -> None:
    case = Case(architecture="qwen2")
    small, large = both(case), both(replace(case, changes={"vocab_size": 1536}))
    assert large[0].peak - small[0].peak == large[1].peak - small[1].peak > 2 * 48 * 1024 * 4


def test_eager_attention() -> None:
    replay, real = both(Case(architecture="llama-3", attention=Attention.EAGER))
    assert replay == real


@pytest.mark.parametrize("stack", [Stack.ACCELERATE, Stack.TRAINER])
def test_stacks_hold_what_they_hold(stack: Stack) -> None:
    replay, real = both(Case(architecture="llama-3", stack=stack))
    assert replay == real


@pytest.mark.parametrize("accumulate", [False, True])
def test_second_iteration(accumulate: bool) -> None:
    case = Case(architecture="qwen2")
    reference = reference_of(case, iterations=2, accumulate=accumulate)
    replay = replayed_second(trace_of(case), case.micro_batch, accumulate=accumulate)
    assert replay == measured(reference, iteration=1)
    assert (replay.peak > measured(reference).peak) is accumulate


def test_pure_bf16() -> None:
    replay, real = both(Case(architecture="llama-3", weights="bfloat16"))
    assert replay == real


def test_the_comparison_can_fail() -> None:
    """The figures tell one more token, or another attention, apart."""
    trace = trace_of(Case(architecture="llama-3"))
    assert replayed(trace, 2) != measured(reference_of(Case(architecture="llama-3", seq_len=49)))
    eager = Case(architecture="llama-3", attention=Attention.EAGER)
    assert replayed(trace, 2) != measured(reference_of(eager))


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("attention", [Attention.SDPA, Attention.EAGER])
@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
@pytest.mark.parametrize(("micro_batch", "seq_len"), [(1, 48), (2, 48), (3, 40), (2, 96), (2, 200)])
def test_all(name: str, attention: Attention, checkpointing: Checkpointing, micro_batch: int, seq_len: int) -> None:
    if name in STATE_SPACE and seq_len > 100:
        pytest.skip("the reference scan loops over tokens")
    case = Case(
        architecture=name,
        attention=attention,
        checkpointing=checkpointing,
        micro_batch=micro_batch,
        seq_len=seq_len,
    )
    replay, real = both(case)
    assert replay == real


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME_STREAM)
@pytest.mark.parametrize("attention", [Attention.SDPA, Attention.EAGER])
@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
def test_all_streams(name: str, attention: Attention, checkpointing: Checkpointing) -> None:
    case = Case(architecture=name, attention=attention, checkpointing=checkpointing)
    assert same_stream(trace_of(case, fold=False), case.micro_batch, reference_of(case))
