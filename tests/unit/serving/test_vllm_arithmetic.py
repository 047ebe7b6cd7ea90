"""vLLM's own arithmetic without a model: heads, pages, groups, blocks, defaults. Figures are logged ones or by hand."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.serving.layers import Heads, heads, layer_caches
from gpu_plan.planner.serving.profile import Batching, profile_run, sizes_of
from gpu_plan.planner.serving.vllm.cache import cache_layout
from gpu_plan.planner.serving.vllm.defaults import batching, capture_sizes, full_graphs
from gpu_plan.planner.units import GIB, KIB, MIB

LLAMA_8B: dict[str, Any] = {
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "gib", "blocks", "tokens", "requests"),
    [(1, 3.81, 1952, 20000, 1.56), (1, 2.89, 1478, 29000, 0.82), (2, 3.76, 3852, 40000, 1.54)],
)
def test_blocks_and_requests_as_vllm_logged_them(
    ranks: int, gib: float, blocks: int, tokens: int, requests: float
) -> None:
    """github.com/vllm-project/vllm/issues/10517 and 11251; the memory is logged to 0.01 GiB."""
    layout = cache_layout(layer_caches(LLAMA_8B, ranks, 2), 16)
    assert layout.bytes_per_block == 2 * MIB // ranks
    assert abs(int(gib * GIB) // layout.bytes_per_block - blocks) <= 0.005 * GIB / layout.bytes_per_block + 1
    assert round(layout.concurrency(blocks * layout.bytes_per_block, tokens, 0), 2) == requests


def test_a_request_takes_whole_blocks_and_the_longest_is_found() -> None:
    layout = cache_layout(layer_caches(LLAMA_8B, 1, 2), 16)
    assert layout.blocks_per_request(16, 0) == 1
    assert layout.blocks_per_request(17, 0) == 2
    assert layout.longest(10 * layout.bytes_per_block, 131072, 0) == 160
    assert layout.longest(10 * layout.bytes_per_block, 131072, 0, requests=3) == 48
    assert layout.longest(10 * layout.bytes_per_block, 100, 0) == 100
    assert layout.longest(-5, 131072, 0) == 0
    assert layout.concurrency(-5, 4096, 0) == 0


def test_fewer_key_value_heads_than_ranks_are_replicated() -> None:
    four = {**LLAMA_8B, "num_key_value_heads": 4}
    assert layer_caches(four, 8, 2)[0].bytes_per_token == layer_caches(four, 4, 2)[0].bytes_per_token
    assert layer_caches({**LLAMA_8B, "num_key_value_heads": None}, 1, 2)[0].bytes_per_token == 2 * 32 * 128 * 2
    assert heads({"n_head": 12, "n_embd": 768}) == Heads(query=12, key_value=12, size=64)


def test_latent_attention_keeps_one_vector_on_every_rank() -> None:
    deepseek = {**LLAMA_8B, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert {layer.bytes_per_token for ranks in (1, 8) for layer in layer_caches(deepseek, ranks, 2)} == {576 * 2}


def test_sliding_layers_share_blocks_with_full_ones() -> None:
    """Gemma 3's pattern: five sliding layers to one full, in groups of as many layers as there are full ones."""
    types = (["sliding_attention"] * 5 + ["full_attention"]) * 4
    config = {**LLAMA_8B, "num_hidden_layers": 24, "layer_types": types, "sliding_window": 1024}
    layout = cache_layout(layer_caches(config, 1, 2), 16)
    assert [group.layer.kind for group in layout.groups].count("sliding") == 5
    assert layout.bytes_per_block == 4 * 16 * 4096
    # A full group of 8192 tokens; five sliding ones of the window, what is in flight, and a block for its edge.
    assert layout.blocks_per_request(8192, 2048) == 512 + 5 * (-(-(1023 + 2048) // 16) + 1)
    assert layout.blocks_per_request(512, 2048) == 32 + 5 * 33


def test_nearly_as_many_of_two_kinds_are_padded_to_the_larger() -> None:
    """kv_cache_planning.py: 12 sliding and 13 full layers make two groups of 13, not three of 12."""
    types = ["sliding_attention"] * 12 + ["full_attention"] * 13
    config = {**LLAMA_8B, "num_hidden_layers": 25, "layer_types": types, "sliding_window": 128}
    layout = cache_layout(layer_caches(config, 1, 2), 16)
    assert len(layout.groups) == 2
    assert layout.bytes_per_block == 13 * 16 * 4096


def test_wider_full_layers_give_the_others_larger_blocks() -> None:
    """Gemma 4: global heads of another size; a page must be as large in every group."""
    types = ["sliding_attention", "full_attention"]
    config = {**LLAMA_8B, "num_hidden_layers": 2, "layer_types": types, "sliding_window": 64, "head_dim": 128,
              "global_head_dim": 512, "num_global_key_value_heads": 4}  # fmt: skip
    layout = cache_layout(layer_caches(config, 1, 2), 16)
    sliding, full = (next(g for g in layout.groups if g.layer.kind == kind) for kind in ("sliding", "full"))
    assert sliding.layer.bytes_per_token * 2 == full.layer.bytes_per_token
    assert (sliding.block_size, full.block_size) == (32, 16)


def test_states_of_linear_attention_make_blocks_long() -> None:
    """Figures of a log of Qwen3.8-27B on two ranks with an fp8 cache (benchmarks/data/vllm_logged.toml)."""
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 16
    config = {
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "num_hidden_layers": 64,
        "layer_types": kinds, "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32",
    }  # fmt: skip
    layout = cache_layout(layer_caches(config, 2, 1), 16)
    assert (layout.block_tokens, len(layout.groups)) == (1568, 4)
    assert layout.bytes_per_block == 1568 * 1024 * 16
    assert layout.blocks_per_request(131072, 0) == 84 + 3 * 2
    assert int(layout.concurrency(208 * layout.bytes_per_block, 131072, 0) * 131072) == 302_921


def test_kernels_that_write_states_inside_a_prefill_take_a_third_block() -> None:
    """qwen_gdn_linear_attn.py: FlashInfer's on Hopper, which wants blocks of 64 tokens; Triton's on Ampere."""
    config = {
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_num_key_heads": 16,
        "linear_num_value_heads": 48, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32",
    }  # fmt: skip
    hopper = cache_layout(layer_caches(config, 2, 1, capability=(9, 0)), 16)
    assert (hopper.block_tokens, hopper.groups[0].states) == (1600, 3)
    ampere = cache_layout(layer_caches(config, 2, 1, capability=(8, 0)), 16)
    assert (ampere.block_tokens, ampere.groups[0].states) == (1568, 2)
    olmo = layer_caches({**config, "model_type": "olmo_hybrid"}, 2, 1, capability=(9, 0))
    assert (olmo[0].state_blocks, olmo[0].aligned) == (2, 1)
    assert layer_caches(config, 2, 1, capability=(12, 0))[0].state_blocks == 3


def test_a_layer_with_a_state_of_its_own_is_refused() -> None:
    with pytest.raises(UsageError, match="linear_attention"):
        layer_caches({**LLAMA_8B, "layer_types": ["linear_attention"] * 32}, 1, 2)
    with pytest.raises(UsageError, match="no attention heads"):
        heads({"hidden_size": 64})


@pytest.mark.parametrize(
    ("spec", "tokens", "seqs"),
    [("1xH100", 8192, 1024), ("1xA100-80GB", 2048, 256), ("1xL40S", 2048, 256), ("1xB200", 16384, 1024)],
)
def test_batches_follow_the_card(spec: str, tokens: int, seqs: int) -> None:
    gpu = parse_cluster(spec).gpu
    assert batching(gpu, 32768) == Batching(max_num_batched_tokens=tokens, max_num_seqs=seqs)
    assert batching(gpu, 32768, 512, 64) == Batching(max_num_batched_tokens=512, max_num_seqs=64)
    assert batching(gpu, 32768, 64).max_num_seqs == 64


def test_graphs_as_many_as_vllm_logged() -> None:
    """vllm-project/vllm/pull/39559: PIECEWISE=51 (largest=512), FULL=35 (largest=256)."""
    gpu = parse_cluster("1xA100-80GB").gpu
    for seqs, sizes, whole, largest in ((256, 51, 35, 512), (64, 19, 11, 128)):
        batch = Batching(max_num_batched_tokens=2048, max_num_seqs=seqs)
        found = capture_sizes(gpu, batch)
        assert (len(found), full_graphs(found, batch), found[-1]) == (sizes, whole, largest)


def test_the_profile_run_by_hand() -> None:
    found, batch = heads(LLAMA_8B), Batching(max_num_batched_tokens=8192, max_num_seqs=1024)
    run = profile_run(sizes_of(LLAMA_8B), found, batch, 1, 2)
    stream = 8192 * 4096 * 2
    assert run.forward == stream + 8192 * 3 * 14336 * 2
    assert run.sampler == stream + 1024 * 4096 * 2 + 1024 * 128256 * (2 + 12)
    assert run.buffers == 1024 * (128256 + 4008) * 4
    assert run.transient == run.sampler
    assert run.workspace == 0
    half = profile_run(sizes_of(LLAMA_8B), found, batch, 2, 2)
    assert half.forward == stream + max(8192 * 3 * 7168 * 2, 2 * stream + 8192 * 6144 // 2 * 2)


def test_experts_compute_in_a_workspace() -> None:
    config = {**LLAMA_8B, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    run = profile_run(sizes_of(config), heads(config), Batching(max_num_batched_tokens=64, max_num_seqs=4), 1, 2)
    assert run.workspace == 64 * 8 * (4096 + 4096) * 2
    assert run.workspace == 8 * KIB * KIB


def test_logged_rows_have_a_source() -> None:
    import tomllib

    rows = tomllib.loads(Path("benchmarks/data/vllm_logged.toml").read_text())["row"]
    assert len(rows) >= 12
    assert all(re.match(r"[a-z.]+\.[a-z]+/\S+", row["source"]) for row in rows), json.dumps(rows)
