"""Samples whose tokens several ranks share: who holds which, and what is waited for."""

import pytest

from gpu_plan.planner.context.rules import divides_heads, splits_tokens, why_uncut
from gpu_plan.planner.context.split import SequenceSplit

LLAMA = {"num_attention_heads": 32, "num_key_value_heads": 8}


@pytest.mark.parametrize("method", ["ring", "ulysses"])
@pytest.mark.parametrize("degree", [2, 3, 8])
def test_every_token_is_one_ranks(method: str, degree: int) -> None:
    length = 2 * degree * 5
    each = [SequenceSplit(degree=degree, method=method, rank=rank).positions(length) for rank in range(degree)]  # type: ignore[arg-type]
    held = [[place for piece in pieces for place in piece] for pieces in each]
    assert sorted(place for one in held for place in one) == list(range(length))
    assert {len(one) for one in held} == {length // degree}


def test_a_ring_is_balanced_and_ulysses_keeps_order() -> None:
    first = SequenceSplit(degree=4, method="ring").positions(16)
    assert first == [range(2), range(14, 16)]
    assert SequenceSplit(degree=4, method="ulysses", rank=1).positions(16) == [range(4, 8)]


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_a_ring_computes_the_blocks_that_a_mask_leaves(degree: int) -> None:
    """One block under a causal mask, of the others half: the share of all pairs that no rank skips."""
    blocks = degree + degree * (degree - 1) / 2
    assert SequenceSplit(degree=degree, method="ring").attention_share == pytest.approx(blocks / degree**2)
    assert SequenceSplit(degree=degree, method="ulysses").attention_share == 1.0


def test_lengths_that_do_not_divide_are_told_with_those_that_do() -> None:
    assert why_uncut(131072, 8, "ring") is None
    assert why_uncut(100008, 8, "ulysses") is None
    assert "use 100000 or 100016" in str(why_uncut(100008, 8, "ring"))
    assert "use 16" in str(why_uncut(7, 8, "ring"))


def test_models_that_are_searched() -> None:
    assert splits_tokens("LlamaForCausalLM", LLAMA)
    assert not splits_tokens("BertForMaskedLM", LLAMA)
    assert not splits_tokens("MistralForCausalLM", {**LLAMA, "sliding_window": 4096})
    assert splits_tokens("Qwen2ForCausalLM", {**LLAMA, "sliding_window": 4096, "use_sliding_window": False})
    assert not splits_tokens("Qwen3NextForCausalLM", {**LLAMA, "layer_types": ["linear_attention", "full_attention"]})
    assert not splits_tokens("JambaForCausalLM", {**LLAMA, "mamba_d_state": 16})
    assert [divides_heads("ulysses", degree, LLAMA) for degree in (2, 8, 16, 24)] == [True, True, True, False]
    assert divides_heads("ring", 24, LLAMA)
