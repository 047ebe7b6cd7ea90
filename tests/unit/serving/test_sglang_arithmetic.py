"""SGLang's own arithmetic without a model, by hand from its source (0.5.23): no log of it is at hand."""

from typing import Any

import pytest

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.serving.layers import layer_caches
from gpu_plan.planner.serving.sglang.defaults import Chosen, choose, decode_sizes, prefill_sizes
from gpu_plan.planner.serving.sglang.pool import Pool, pool_of
from gpu_plan.planner.serving.sglang.server import SGLANG
from gpu_plan.planner.units import MIB

LLAMA_8B: dict[str, Any] = {
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096,
    "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
SLIDING: dict[str, Any] = {
    **LLAMA_8B, "num_hidden_layers": 4, "sliding_window": 128, "architectures": ["GptOssForCausalLM"],
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}  # fmt: skip


def chosen(spec: str, ranks: int = 1, **words: Any) -> Chosen:
    given = {"latent": False, "chunk": None, "running": None, "eager": False, "prefill_graphs": True, **words}
    return choose(parse_cluster(spec).gpu, ranks, **given)


def test_sizes_of_graphs() -> None:
    assert decode_sizes(8) == (1, 2, 4, 8)
    assert decode_sizes(10) == (1, 2, 4, 8, 10)
    assert decode_sizes(256)[-2:] == (248, 256)
    assert len(decode_sizes(256)) == 5 + 31
    assert prefill_sizes(64) == (4, 8, 12, 16, 20, 24, 28, 32, 48, 64)
    assert len(prefill_sizes(8192)) == 58


@pytest.mark.parametrize(
    ("spec", "ranks", "chunk", "graph"),
    [
        ("1xT4", 1, 2048, 8), ("1xA10", 1, 4096, 48), ("4xA10", 4, 4096, 160), ("1xL40S", 1, 4096, 32),
        ("1xH100", 1, 8192, 256), ("8xH100", 8, 8192, 512), ("1xB200", 1, 16384, 512),
    ],
)  # fmt: skip
def test_the_card_decides_chunk_and_graphs(spec: str, ranks: int, chunk: int, graph: int) -> None:
    found = chosen(spec, ranks)
    assert (found.chunk, found.graphs.decode[-1]) == (chunk, graph)


def test_the_share_that_it_takes_by_itself() -> None:
    memory = (parse_cluster("1xH100").gpu.usable_bytes or 0) / MIB
    plain = 512 + 8192 * 1.5 + 128
    assert chosen("1xH100").share == round((memory - plain - 512 - 58 * 8) / memory, 3)
    assert chosen("1xH100", eager=True).share == round((memory - plain) / memory, 3)
    assert chosen("1xH100", latent=True).share == round((memory - plain - 512 - 1536) / memory, 3)
    # A card with room puts by 10 GiB at least.
    assert chosen("1xH100", chunk=1024, eager=True).share == round((memory - 10240) / memory, 3)
    assert chosen("1xH100", running=16).graphs.decode[-1] == 16


def test_one_pool_of_all_layers() -> None:
    pool = pool_of(layer_caches(LLAMA_8B, 1, 2), LLAMA_8B, 1)
    assert pool == Pool(full=32 * 8 * 128 * 2 * 2)
    assert pool.tokens(10 * pool.full + 1) == 10
    assert pool.concurrency(100 * pool.full, 30, 0) == pytest.approx(100 / 30)
    assert pool.longest(100 * pool.full, 1000, 0, requests=3) == 33
    assert pool.concurrency(-5, 30, 0) == 0
    paged = pool_of(layer_caches(LLAMA_8B, 1, 2), LLAMA_8B, 64)
    assert paged.tokens(100 * pool.full) == 64


def test_sliding_layers_have_a_pool_of_their_own() -> None:
    pool = pool_of(layer_caches(SLIDING, 1, 2), SLIDING, 1)
    each = 2 * 8 * 128 * 2 * 2
    assert (pool.full, pool.sliding, pool.window) == (each, each, 128)
    assert pool.bytes_per_token == each * 1.8
    # Of Gemma 2 and all that SGLang does not tell apart every layer keeps every token.
    other = {**SLIDING, "architectures": ["Gemma2ForCausalLM"]}
    assert pool_of(layer_caches(other, 1, 2), other, 1) == Pool(full=2 * each)
    held = pool.concurrency(1_000_000 * each, 1000, 0)
    assert held == pytest.approx(pool.tokens(1_000_000 * each) / 1000)


def test_a_cache_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="an index beside its keys and values"):
        pool_of(layer_caches(LLAMA_8B, 1, 2), {**LLAMA_8B, "index_topk": 2048}, 1)


@pytest.mark.parametrize(("ranks", "said"), [(3, "does not divide"), (16, None), (8, None)])
def test_what_it_cannot_split(ranks: int, said: str | None) -> None:
    found = SGLANG.refusal(LLAMA_8B, ranks)
    assert found is None if said is None else said in str(found)
