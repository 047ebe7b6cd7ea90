"""Mamba's states under vLLM: bytes, blocks, groups, ranks. Figures are a public thread's or by hand from the source."""

from typing import Any

import pytest

from gpu_plan.planner.model.spec import ParameterSpec
from gpu_plan.planner.serving.layers import Heads, heads, layer_caches
from gpu_plan.planner.serving.profile import sizes_of
from gpu_plan.planner.serving.states import keeps_known_states, widened
from gpu_plan.planner.serving.vllm.cache import cache_layout
from gpu_plan.planner.serving.vllm.server import VLLM

NEMOTRON_NANO: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 4480, "num_attention_heads": 40, "num_key_value_heads": 8,
    "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 80, "ssm_state_size": 128, "n_groups": 8,
    "conv_kernel": 4, "intermediate_size": 15680, "vocab_size": 131072, "n_routed_experts": 8,
    "layers_block_type": ["linear_attention"] * 27 + ["full_attention"] * 4 + ["mlp"] * 25,
}  # fmt: skip
"""NVIDIA-Nemotron-Nano-9B-v2: 27 layers of Mamba-2, four that attend, 25 without a cache."""
JAMBA: dict[str, Any] = {
    "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_expand": 2, "mamba_d_state": 16,
    "mamba_d_conv": 4, "intermediate_size": 14336, "vocab_size": 65536,
}  # fmt: skip
MAMBA: dict[str, Any] = {
    "model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "intermediate_size": 5120, "state_size": 16,
    "conv_kernel": 4, "vocab_size": 50280,
}  # fmt: skip
MAMBA2: dict[str, Any] = {**MAMBA, "model_type": "mamba2", "expand": 2, "head_dim": 64, "n_groups": 8}
FALCON: dict[str, Any] = {
    "model_type": "falcon_h1", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64,
    "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip


def test_a_block_of_nemotron_nano_is_as_long_as_its_thread_says() -> None:
    """github.com/vllm-project/vllm/issues/24280: 672 tokens, when vLLM kept its states in 16 bits."""
    older = cache_layout(layer_caches({**NEMOTRON_NANO, "mamba_ssm_cache_dtype": "bfloat16"}, 1, 2), 16)
    assert older.block_tokens == 672
    today = layer_caches(NEMOTRON_NANO, 1, 2)
    assert today[0].state_bytes == 3 * (10240 + 2 * 8 * 128) * 2 + 128 * 80 * 128 * 4
    assert cache_layout(today, 16).block_tokens == 16 * -(-today[0].state_bytes // (16 * 4096)) == 1312


def test_layers_that_keep_nothing_have_no_cache() -> None:
    caches = layer_caches(NEMOTRON_NANO, 1, 2)
    assert [one.kind for one in caches].count("state") == 27
    assert len(caches) == 31
    layout = cache_layout(caches, 16)
    # Four layers a group: one of attention, seven of states, each of which a request takes three blocks of.
    assert [group.layer.kind for group in layout.groups].count("state") == 7
    assert layout.blocks_per_request(8192, 0) == -(-8192 // 1312) + 7 * 3
    assert sizes_of(NEMOTRON_NANO).experts_per_token == 0


def test_jamba_keeps_two_blocks_of_a_state_and_splits_it_over_ranks() -> None:
    caches = layer_caches(JAMBA, 8, 2)
    assert [i for i, one in enumerate(caches) if one.kind == "full"] == [4, 12, 20, 28]
    assert caches[0].state_bytes == 3 * 1024 * 2 + 1024 * 16 * 2
    layout = cache_layout(caches, 16)
    assert layout.block_tokens == 80
    assert layout.bytes_per_block == 4 * 80 * 512
    assert layout.blocks_per_request(8192, 0) == 103 + 7 * 2


def test_without_attention_a_request_is_one_block_of_any_length() -> None:
    layout = cache_layout(layer_caches(MAMBA, 1, 2), 8192)
    assert layout.bytes_per_block == 64 * (3 * 5120 * 2 + 5120 * 16 * 2)
    assert layout.blocks_per_request(100, 0) == layout.blocks_per_request(8192, 0) == 1
    assert layout.block_tokens == 8192
    assert heads(MAMBA) == Heads(query=0, key_value=0, size=0)


def test_falcons_layers_attend_and_keep_a_state() -> None:
    caches = layer_caches(FALCON, 1, 2)
    assert [one.kind for one in caches] == ["full", "state", "full", "state"]
    assert len(cache_layout(caches, 16).groups) == 2


@pytest.mark.parametrize(
    ("config", "ranks", "why"),
    [
        (MAMBA, 3, "splits 5120 channels"),
        ({**MAMBA2, "num_heads": 128}, 3, "128 heads"),
        ({**MAMBA2, "num_heads": 96}, 3, "8 groups"),
        (FALCON, 16, "8 attention heads"),
        (FALCON, 4, None),
        (JAMBA, 8, None),
    ],
)
def test_what_ranks_do_not_divide_is_refused(config: dict[str, Any], ranks: int, why: str | None) -> None:
    said = VLLM.refusal(config, ranks)
    assert said is None if why is None else why in (said or "")


def test_the_only_group_of_a_state_is_copied_to_each_rank() -> None:
    """mamba_mixer2.py: in_proj and conv1d of one group; with as many groups as ranks nothing is."""
    rows = 2 * 1536 + 2 * 128 + 24
    name = "model.layers.0.mamba.in_proj.weight"
    projection = ParameterSpec(name=name, shape=(rows, 1024), dtype="bfloat16", trainable=True)
    assert widened(FALCON, 4)(projection) == (2 * 1536 + 2 * 4 * 128 + 24) * 1024 // 4 * 2
    assert widened(FALCON, 1)(projection) is None
    assert widened({**FALCON, "mamba_n_groups": 4}, 4)(projection) is None


def test_other_states_are_not_known() -> None:
    assert not keeps_known_states({"model_type": "recurrent_gemma"})
    assert keeps_known_states(JAMBA)
