"""Traced bytes of float8 steps against the CPU allocator's own events, on models that torchao has converted."""

import pytest

from gpu_plan.planner.workload.training import Checkpointing
from tests.accuracy.float8_cases import Float8Case, reference_of, trace_of
from tests.support.replay_cpu import Figures, measured, replayed, same_stream, unmatched
from tests.support.sample import sample


def both(case: Float8Case) -> tuple[Figures, Figures]:
    return replayed(trace_of(case), case.micro_batch), measured(reference_of(case))


@pytest.mark.parametrize(
    ("name", "weights"),
    sample(
        [
            ("llama-3", "float32"),
            ("llama-3", "bfloat16"),
            ("qwen2", "float32"),
            ("qwen2", "bfloat16"),
            ("bert", "float32"),
        ],
        kept=[("qwen2", "bfloat16")],
    ),
)
def test_peak_and_held_bytes_equal(name: str, weights: str) -> None:
    replay, real = both(Float8Case(architecture=name, weights=weights))
    assert replay == real
    assert real.peak > real.forward_end > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
def test_checkpointed(weights: str) -> None:
    replay, real = both(Float8Case(architecture="llama-3", weights=weights, checkpointing=Checkpointing.FULL))
    assert replay == real


def test_every_allocation_and_free_in_order() -> None:
    """In fp32: 16-bit products take scratch on a CPU that depends on the processor."""
    case = Float8Case(architecture="llama-3")
    assert same_stream(trace_of(case, fold=False), case.micro_batch, reference_of(case))


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
def test_folded_layers(checkpointing: Checkpointing) -> None:
    """The first layer's query projection stays as it was: that layer is of another kind."""
    replay, real = both(Float8Case(architecture="llama-3", layers=8, checkpointing=checkpointing))
    assert replay == real


def test_float8_is_what_makes_the_difference() -> None:
    case = Float8Case(architecture="llama-3")
    reference = reference_of(case)
    assert not same_stream(trace_of(case, fold=False, float8=False), case.micro_batch, reference)
    assert unmatched(trace_of(case, fold=False, float8=False), case.micro_batch, reference)
    assert not unmatched(trace_of(case, fold=False), case.micro_batch, reference)
