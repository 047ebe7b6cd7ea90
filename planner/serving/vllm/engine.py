"""vLLM on one device: what it asks for, what stands beside its cache, and what is left for blocks.

vLLM 0.33.0: v1/worker/utils.py (request_memory), v1/worker/gpu_worker.py (init_device,
determine_available_memory), utils/mem_utils.py (memory_profiling), v1/worker/gpu/cudagraph_utils.py
(profile_cudagraph_memory), envs.py (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS, on by default since 0.21).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.serving.vllm.cache import CacheLayout, cache_layout
from gpu_plan.planner.serving.vllm.defaults import (
    BLOCK_SIZE,
    CONCURRENT_BATCHES,
    UTILIZATION,
    Batching,
    batching,
    capture_sizes,
    full_graphs,
)
from gpu_plan.planner.serving.vllm.layers import heads, layer_caches
from gpu_plan.planner.serving.vllm.profile import ProfileRun, profile_run, sizes_of
from gpu_plan.planner.serving.vllm.weights import RankWeights, rank_weights
from gpu_plan.planner.units import MIB

_GRAPH_LOW, _GRAPH, _GRAPH_HIGH = MIB, 7 * MIB, 16 * MIB
"""Of one graph. Two logs give 4.8 and 8.7 (benchmarks/results/vllm_logged.md); vLLM itself counts at least 1."""
_OUTSIDE_LOW, _OUTSIDE, _OUTSIDE_HIGH = 20 * MIB, 120 * MIB, 400 * MIB
"""Kernels that are loaded, and libraries' own memory, from the first snapshot to the end of the profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of `vllm serve`; None: its own default."""

    max_model_len: int
    utilization: float = UTILIZATION
    tensor_parallel: int = 1
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    eager: bool = False
    """`--enforce-eager`: no graphs are captured."""
    element_bytes: int = 2
    """Of the type of the computation."""
    cache_bytes: int = 2
    """Of an element of the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """One rank of the engine; bytes."""

    total: int
    """The device's whole memory."""
    requested: int
    """The share that utilisation gives."""
    weights: RankWeights
    run: ProfileRun
    graphs: Term
    outside: Term
    """Beside torch, from start to the end of the profile."""
    layout: CacheLayout
    batch: Batching
    max_model_len: int

    @property
    def in_flight(self) -> int:
        """Tokens that may be computed and not yet settled."""
        return CONCURRENT_BATCHES * self.batch.max_num_batched_tokens

    @property
    def held(self) -> int:
        """What stands on the device whatever the cache holds, without graphs and what is not torch's."""
        return self.weights.nbytes + self.run.buffers + self.run.workspace

    @property
    def available(self) -> int:
        """What vLLM logs as `Available KV cache memory`; negative where nothing is left."""
        return self._available(self.graphs.expected + self.outside.expected)

    @property
    def least_available(self) -> int:
        return self._available(self.graphs.high + self.outside.high)

    @property
    def most_available(self) -> int:
        return self._available(self.graphs.low + self.outside.low)

    def _available(self, uncertain: int) -> int:
        return self.requested - self.held - self.run.transient - uncertain

    @property
    def blocks(self) -> int:
        return max(0, self.available // self.layout.bytes_per_block)

    @property
    def cache_bytes(self) -> int:
        return self.blocks * self.layout.bytes_per_block

    def concurrency(self, available: int | None = None) -> float:
        """Requests of `max_model_len` tokens that are held at once: `Maximum concurrency`."""
        bytes_ = self.available if available is None else available
        return self.layout.concurrency(bytes_, self.max_model_len, self.in_flight)

    @property
    def cache_tokens(self) -> int:
        """What vLLM logs as `GPU KV cache size`."""
        return int(self.concurrency() * self.max_model_len)

    def longest(self, most: int, requests: int = 1) -> int:
        """Tokens of the longest requests of which so many are held at once."""
        return self.layout.longest(self.available, most, self.in_flight, requests)


def engine_memory(
    spec: ModelSpec, config: Mapping[str, Any], gpu: Gpu, total: int, options: EngineOptions
) -> EngineMemory:
    """Of one rank on a device of `total` bytes. UsageError for a model whose cache is not known."""
    ranks, element = options.tensor_parallel, options.element_bytes
    found, batch = (
        heads(config),
        batching(gpu, options.max_model_len, options.max_num_batched_tokens, options.max_num_seqs),
    )
    caches = layer_caches(config, ranks, options.cache_bytes)
    return EngineMemory(
        total=total,
        requested=math.ceil(total * options.utilization),
        weights=rank_weights(spec, config, found, ranks, element),
        run=profile_run(sizes_of(config), found, batch, ranks, element),
        graphs=_graphs(gpu, batch, options.eager),
        outside=_outside(),
        layout=cache_layout(caches, options.block_size or BLOCK_SIZE),
        batch=batch,
        max_model_len=options.max_model_len,
    )


def _graphs(gpu: Gpu, batch: Batching, eager: bool) -> Term:
    if eager:
        return Term(name="CUDA graphs", low=0, expected=0, high=0, basis="source", source="--enforce-eager: none")
    sizes = capture_sizes(gpu, batch)
    count = len(sizes) + full_graphs(sizes, batch)
    return Term(
        name="CUDA graphs",
        low=count * _GRAPH_LOW,
        expected=count * _GRAPH,
        high=count * _GRAPH_HIGH,
        basis="assumed",
        source=f"{len(sizes)} sizes up to {sizes[-1]} tokens, {count} graphs; vLLM counts at least 1 MiB each",
    )


def _outside() -> Term:
    return Term(
        name="kernels and libraries",
        low=_OUTSIDE_LOW,
        expected=_OUTSIDE,
        high=_OUTSIDE_HIGH,
        basis="assumed",
        source="what the device loses beside torch between vLLM's first snapshot and its last",
    )
