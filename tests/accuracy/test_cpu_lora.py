"""Traced bytes of LoRA steps against the CPU allocator's own events, on real models that peft has wrapped."""

from itertools import product

import pytest

from gpu_plan.planner.workload.training import Checkpointing
from tests.accuracy.lora_cases import LoraCase, reference_of, trace_of
from tests.support.replay_cpu import Figures, measured, replayed, same_stream
from tests.support.sample import sample

MANY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def both(case: LoraCase) -> tuple[Figures, Figures]:
    return replayed(trace_of(case), case.micro_batch), measured(reference_of(case))


@pytest.mark.parametrize("name", sample(["llama-3", "qwen2", "gpt2", "bert", "t5"], kept=["llama-3", "gpt2", "t5"]))
def test_peak_and_held_bytes_equal(name: str) -> None:
    replay, real = both(LoraCase(architecture=name))
    assert replay == real
    assert real.peak > real.forward_end > 100_000


@pytest.mark.parametrize(
    ("weights", "checkpointing"),
    sample(
        product(["float32", "bfloat16"], Checkpointing),
        kept=[("float32", Checkpointing.NONE), ("bfloat16", Checkpointing.SELECTIVE)],
    ),
)
def test_all_projections_with_dropout(weights: str, checkpointing: Checkpointing) -> None:
    case = LoraCase(
        architecture="llama-3", rank=4, targets=MANY, dropout=0.1, weights=weights, checkpointing=checkpointing
    )
    replay, real = both(case)
    assert replay == real


def test_every_allocation_and_free_in_order() -> None:
    case = LoraCase(architecture="llama-3")
    assert same_stream(trace_of(case, fold=False), case.micro_batch, reference_of(case))


@pytest.mark.parametrize("checkpointing", sample(Checkpointing, kept=[Checkpointing.FULL]))
def test_folded_layers(checkpointing: Checkpointing) -> None:
    """The first block has inputs without gradient: it must stay one that is executed."""
    case = LoraCase(architecture="llama-3", layers=8, checkpointing=checkpointing)
    replay, real = both(case)
    assert replay == real


def test_a_larger_rank_costs_what_it_costs() -> None:
    small, large = both(LoraCase(architecture="llama-3")), both(LoraCase(architecture="llama-3", rank=32))
    assert large[0].backward_end - small[0].backward_end == large[1].backward_end - small[1].backward_end > 0


def test_the_comparison_can_fail() -> None:
    case = LoraCase(architecture="llama-3")
    assert replayed(trace_of(case), 2) != measured(reference_of(LoraCase(architecture="llama-3", targets=("q_proj",))))
