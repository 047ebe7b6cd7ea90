"""Prints vLLM's arithmetic beside what vLLM logged in other people's runs (data/vllm_logged.toml), as Markdown.

    .venv/bin/python -m benchmarks.told.vllm_logged > benchmarks/results/vllm_logged.md

No engine runs: weights are computed from the model's parameters, blocks and requests from the cache memory that was
logged. What a log leaves open (utilisation, card, other processes) is not guessed.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.places import DATA
from gpu_plan.planner.hardware.cluster import parse_cluster
from gpu_plan.planner.model.build.text_config import text_config
from gpu_plan.planner.model.quantization import parse_quantize
from gpu_plan.planner.model.quantization.configs import scheme_of
from gpu_plan.planner.model.source.resolve import resolve
from gpu_plan.planner.serving.layers import heads, layer_caches
from gpu_plan.planner.serving.profile import Batching
from gpu_plan.planner.serving.sglang.pool import pool_of
from gpu_plan.planner.serving.vllm import VERSION
from gpu_plan.planner.serving.vllm.cache import CacheLayout, cache_layout
from gpu_plan.planner.serving.vllm.defaults import capture_sizes, full_graphs
from gpu_plan.planner.serving.vllm.experts import held_on
from gpu_plan.planner.serving.weights import rank_weights
from gpu_plan.planner.trace.device import device_kind
from gpu_plan.planner.trace.generation.provider import GenerationProvider
from gpu_plan.planner.units import GIB

_ROWS = DATA / "vllm_logged.toml"
_HEAD = """# vLLM's arithmetic beside its own logs

What vLLM logged in runs that public issues quote, and the same figure by the rules of `planner/serving/vllm` (version
{version}). Made by `python -m benchmarks.told.vllm_logged`; rows and sources are in `benchmarks/data/vllm_logged.toml`.
Blocks are computed from the cache memory that was logged, which is rounded to 0.01 GiB: a block more or less is that.

| source | vLLM | figure | logged | computed | |
|---|---|---|---|---|---|"""


def main() -> None:
    """Prints the table."""
    print(_HEAD.format(version=VERSION))
    for row in tomllib.loads(_ROWS.read_text())["row"]:
        for figure, logged, computed in _figures(row):
            cells = (row["source"], row["version"], figure, logged, computed, row.get("note", ""))
            print("| " + " | ".join(cells) + " |")


def _figures(row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if "graphs" in row:
        yield from _graphs(row)
        return
    model, ranks = row["model"], row.get("ranks", 1)
    what = model + (f", {ranks} ranks" if ranks > 1 else "")
    config = row.get("config")  # of a model that is not in the catalog
    if config is None:
        source = resolve(model, trust_remote_code=False, revision=None)
        assert source.config is not None
        config = text_config(source.config)
        if "weights" in row:
            yield f"{what}: weights of a rank, GiB", f"{row['weights']}", f"{_weights(row, source, config):.4f}"
    caches = layer_caches(config, ranks, row.get("cache_bytes", 2))
    if "sglang_tokens" in row:
        tokens = row["sglang_tokens"]
        size = pool_of(caches, config, 1).bytes_per_token * tokens / GIB
        yield f"{what}: cache of {tokens:,} tokens, GiB", f"{row['sglang_gib']}", f"{size:.2f}"
        return
    layout = cache_layout(caches, 16)
    if "states" in row:
        layout = replace(layout, groups=tuple(replace(one, states=row["states"]) for one in layout.groups))
    if "block_tokens" in row:
        yield f"{what}: tokens of a block", f"{row['block_tokens']:,}", f"{layout.block_tokens:,}"
    yield from _cache(row, what, layout)


def _weights(row: Mapping[str, Any], source: Any, config: Mapping[str, Any]) -> float:
    scheme = parse_quantize(row["quantize"]) if "quantize" in row else scheme_of(source.config)
    gpu, ranks = parse_cluster(row.get("gpu", "1xH100")).gpu, row.get("ranks", 1)
    provider = GenerationProvider(
        source=source,
        device=device_kind(gpu),
        attention="sdpa",
        dtype="bfloat16",
        scheme=scheme,
    )
    spec = provider.spec()
    spec = replace(spec, parameters=(*spec.parameters, *provider.packed()))
    held = held_on(gpu, spec, config, ranks)
    return rank_weights(spec, config, heads(config), ranks, 2, held).nbytes / GIB


def _cache(row: Mapping[str, Any], what: str, layout: CacheLayout) -> Iterator[tuple[str, str, str]]:
    context, held = row.get("context"), row.get("blocks", row.get("tokens", 0) // 16)
    if "available" in row and held:
        blocks = int(row["available"] * GIB) // layout.bytes_per_block
        yield f"{what}: blocks in {row['available']} GiB", f"{held:,}", f"{blocks:,}"
    if "concurrency" in row:
        memory = held * layout.bytes_per_block if held else int(row["available"] * GIB)
        requests = layout.concurrency(memory, context, 0)
        where = f"{held:,} blocks" if held else f"{row['available']} GiB"
        yield f"{what}: requests of {context:,} tokens in {where}", f"{row['concurrency']}", f"{requests:.2f}"
    if "pool_tokens" in row:
        yield f"{what}: tokens that it logs", f"{row['pool_tokens']:,}", f"{int(requests * context):,}"
    if "needed" in row:
        whole = layout.blocks_per_request(context, row.get("batched_tokens", 0)) * layout.bytes_per_block / GIB
        digits = len(str(row["needed"]).partition(".")[2])
        yield f"{what}: cache of {context:,} tokens, GiB", f"{row['needed']}", f"{whole:.{digits}f}"
    if "longest" in row:
        longest = layout.longest(int(row["available"] * GIB), context, 0)
        yield f"{what}: longest request in {row['available']} GiB", f"{row['longest']:,}", f"{longest:,}"


def _graphs(row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    seqs = row["max_num_seqs"]
    batch = Batching(max_num_batched_tokens=2048, max_num_seqs=seqs)
    sizes = capture_sizes(parse_cluster("1xA100-80GB").gpu, batch)
    logged = " and ".join(map(str, row["graphs"]))
    yield f"graphs of {seqs} sequences: piecewise and whole", logged, f"{len(sizes)} and {full_graphs(sizes, batch)}"
    each = row["graph_gib"] * 1024 / sum(row["graphs"])
    yield "MiB a graph, as vLLM estimated it", f"{each:.1f}", "7 (1 to 16)"


if __name__ == "__main__":
    main()
