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
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.serving.layers import heads, layer_caches
from gpu_plan.planner.serving.memory import EngineMemory, EngineOptions
from gpu_plan.planner.serving.profile import Batching, profile_run, sizes_of
from gpu_plan.planner.serving.states import attention_free, widened
from gpu_plan.planner.serving.vllm.cache import cache_layout
from gpu_plan.planner.serving.vllm.defaults import (
    BLOCK_SIZE,
    CONCURRENT_BATCHES,
    UTILIZATION,
    batching,
    capture_sizes,
    full_graphs,
)
from gpu_plan.planner.serving.vllm.experts import held_on
from gpu_plan.planner.serving.weights import rank_weights
from gpu_plan.planner.units import MIB, format_gib

_GRAPH_LOW, _GRAPH, _GRAPH_HIGH = MIB, 7 * MIB, 16 * MIB
"""Of one graph. Two logs give 4.8 and 8.7 (benchmarks/results/vllm_logged.md); vLLM itself counts at least 1."""
_OUTSIDE_LOW, _OUTSIDE, _OUTSIDE_HIGH = 20 * MIB, 120 * MIB, 400 * MIB
"""Kernels that are loaded, and libraries' own memory, from the first snapshot to the end of the profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmMemory(EngineMemory):
    """One rank of vLLM; bytes. `available` is what it logs as `Available KV cache memory`."""

    @property
    def in_flight(self) -> int:
        return CONCURRENT_BATCHES * self.batch.max_num_batched_tokens

    @property
    def available(self) -> int:
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
    def surely_runs(self) -> bool:
        """Its profile has run its largest batch before the cache is made."""
        return True

    @property
    def stays_asleep(self) -> int:
        """v1/worker/gpu_worker.py (sleep): what lies in no pool of weights or of the cache."""
        return self.run.buffers + self.run.workspace + self.graphs.expected + self.outside.expected

    def failure(self, baseline: int) -> str | None:
        share = format_gib(self.requested)
        if self.total - baseline < self.requested:
            free = format_gib(self.total - baseline)
            return f"asks for {share} GiB at the start and finds {free} free: lower --gpu-memory-utilization"
        if self.most_available < self.layout.bytes_per_block:
            parts = (
                f"weights {format_gib(self.weights.nbytes)}, buffers"
                f" {format_gib(self.run.buffers + self.run.workspace)}, its largest batch"
                f" {format_gib(self.run.transient)}"
            )
            return f"nothing is left for its cache in {share} GiB: {parts}"
        return None


def engine_memory(
    spec: ModelSpec, config: Mapping[str, Any], gpu: Gpu, total: int, options: EngineOptions
) -> VllmMemory:
    """Of one rank on a device of `total` bytes. UsageError for a model whose cache is not known."""
    ranks, element = options.tensor_parallel, options.element_bytes
    found, batch = heads(config), _batch(gpu, options)
    share = options.utilization or UTILIZATION
    caches = layer_caches(config, ranks, options.cache_bytes, element, gpu.compute_capability)
    packed, states = held_on(gpu, spec, config, ranks), widened(config, ranks)
    # Without attention prefixes are not cached: a block is a whole request (MambaModelConfig).
    block = options.max_model_len if attention_free(config) else options.block_size or BLOCK_SIZE

    def held(one: ParameterSpec) -> int | None:
        kept = packed(one)
        return states(one) if kept is None else kept

    return VllmMemory(
        total=total,
        utilization=share,
        requested=math.ceil(total * share),
        weights=rank_weights(spec, config, found, ranks, element, held),
        run=profile_run(sizes_of(config), found, batch, ranks, element),
        graphs=_graphs(gpu, batch, options.eager),
        outside=_outside(),
        layout=cache_layout(caches, block),
        batch=batch,
        max_model_len=options.max_model_len,
    )


def _batch(gpu: Gpu, options: EngineOptions) -> Batching:
    """A server that must hold more sequences than vLLM computes by default is told to."""
    own = batching(gpu, options.max_model_len, options.max_num_batched_tokens, options.max_num_seqs)
    if options.max_num_seqs is not None or options.least_seqs <= own.max_num_seqs:
        return own
    return batching(gpu, options.max_model_len, options.max_num_batched_tokens, options.least_seqs)


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
