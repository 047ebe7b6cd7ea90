"""SGLang on one device: a share of what is free at its start is weights and pool; all else is to fit beside it.

sglang 0.5.23: srt/distributed/bootstrap.py (measure_pre_model_load_memory), srt/mem_cache/kv_cache_configurator.py
(_profile_available_bytes, resolve_max_num_reqs), srt/mem_cache/memory_pool.py (ReqToTokenPool: a number for every token
of every request that may run), srt/layers/logits_processor.py (_get_logits: a copy in fp32), srt/layers/sampler.py
(softmax), srt/layers/rotary_embedding/base.py (cosines and sines in fp32),
srt/models/deepseek_common/deepseek_weight_loader.py (w_kc and w_vc: kv_b_proj a second time),
srt/managers/scheduler_components/weight_updater.py (release_memory_occupation).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.memory.overheads import Term
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.serving.layers import Heads, heads, latent_size, layer_caches
from gpu_plan.planner.serving.memory import EngineMemory, EngineOptions
from gpu_plan.planner.serving.profile import Batching, ProfileRun, profile_run, sizes_of
from gpu_plan.planner.serving.sglang.defaults import Chosen, choose
from gpu_plan.planner.serving.sglang.pool import Pool, pool_of
from gpu_plan.planner.serving.weights import RankWeights, rank_weights
from gpu_plan.planner.units import MIB, format_gib

_FEWEST_SLOTS, _MOST_SLOTS, _SLOTS_A_CONTEXT = 2048, 4096, 512
_INT32, _FP32 = 4, 4
_GRAPH_LOW = MIB
_OUTSIDE_LOW, _OUTSIDE, _OUTSIDE_HIGH = 20 * MIB, 120 * MIB, 400 * MIB
"""Kernels that are loaded, and libraries' own memory, from the first look at what is free on."""
_FLASHINFER = 384 * MIB
"""srt/environ.py: SGLANG_FLASHINFER_WORKSPACE_SIZE; on other cards than Hopper's."""
_HOPPER = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangMemory(EngineMemory):
    """One rank of SGLang; bytes."""

    free: tuple[int, int, int]
    """Of the device at its start: fewest, expected, most."""
    bounds: tuple[int, int]
    """Of the pool: fewest and most bytes."""

    @property
    def available(self) -> int:
        return self.requested - self.weights.nbytes

    @property
    def least_available(self) -> int:
        return self.bounds[0] - self.weights.nbytes

    @property
    def most_available(self) -> int:
        return self.bounds[1] - self.weights.nbytes

    @property
    def in_flight(self) -> int:
        """Two chunks: one is prepared while another runs."""
        return 2 * self.batch.max_num_batched_tokens

    @property
    def _beside(self) -> int:
        """What is to fit beside weights and pool, but for graphs and what is not torch's."""
        return self.run.buffers + self.run.workspace + self.run.transient

    @property
    def surely_runs(self) -> bool:
        beside = self._beside + self.graphs.high + self.outside.high
        return self.bounds[0] + beside <= self.free[0]

    @property
    def stays_asleep(self) -> int:
        """Weights, pool and the table of requests go; graphs only under SGLANG_MEMORY_SAVER_CUDA_GRAPH."""
        return self.run.workspace + self.graphs.expected + self.outside.expected

    def failure(self, baseline: int) -> str | None:
        share = format_gib(self.requested)
        weights = format_gib(self.weights.nbytes)
        if self.most_available < self.layout.bytes_per_block:
            return f"its static share of {share} GiB holds weights of {weights} and no cache: raise the share"
        least = self._beside + self.graphs.low + self.outside.low
        if self.bounds[1] + least > self.free[2]:
            return (
                f"its static share of {share} GiB leaves {format_gib(self.free[1] - self.requested)} for what takes"
                f" {format_gib(self._beside + self.graphs.expected + self.outside.expected)}: its largest batch, the"
                " table of requests, graphs and kernels: lower the share"
            )
        return None


def engine_memory(
    spec: ModelSpec, config: Mapping[str, Any], gpu: Gpu, total: int, options: EngineOptions
) -> SglangMemory:
    """Of one rank on a device of `total` bytes. UsageError for a model whose pool is not known."""
    ranks, element = options.tensor_parallel, options.element_bytes
    found, latent = heads(config), latent_size(config) is not None
    if options.multimodal and options.utilization is None:
        raise UsageError(
            "--server sglang: of a model with an encoder its own share depends on that encoder, which is not served"
            " here: add --gpu-memory-utilization"
        )
    chosen = choose(
        gpu,
        ranks,
        latent=latent,
        chunk=options.max_num_batched_tokens,
        running=options.max_num_seqs,
        eager=options.eager,
        prefill_graphs=not options.multimodal,
    )
    share = options.utilization or chosen.share
    free = tuple(total - taken for taken in reversed(options.taken))
    pool = pool_of(layer_caches(config, ranks, options.cache_bytes), config, options.block_size or chosen.page)
    weights = _weights(rank_weights(spec, config, found, ranks, element), spec, latent=latent, ranks=ranks)
    requested = int(free[1] * share)
    slots = _slots(pool, requested - weights.nbytes, options)
    batch = Batching(max_num_batched_tokens=chosen.chunk, max_num_seqs=slots)
    return SglangMemory(
        total=total,
        utilization=share,
        requested=requested,
        weights=weights,
        run=_run(config, found, gpu, chosen, batch, options),
        graphs=_graphs(chosen, latent=latent),
        outside=_outside(),
        layout=pool,
        batch=batch,
        max_model_len=options.max_model_len,
        free=(free[0], free[1], free[2]),
        bounds=(int(free[0] * share), int(free[2] * share)),
    )


def _slots(pool: Pool, available: int, options: EngineOptions) -> int:
    """Requests that may run at once."""
    tokens = pool.tokens(available)
    wanted = options.max_num_seqs
    if wanted is None:
        wanted = max(min(tokens * _SLOTS_A_CONTEXT // options.max_model_len, _MOST_SLOTS), _FEWEST_SLOTS)
        wanted = max(wanted, options.least_seqs)
    return max(1, min(wanted, tokens // 2))


def _run(
    config: Mapping[str, Any], found: Heads, gpu: Gpu, chosen: Chosen, batch: Batching, options: EngineOptions
) -> ProfileRun:
    """What stands beside weights and pool: of a prefill chunk, and of as many sequences as are asked or captured."""
    sizes, ranks, element = sizes_of(config), options.tensor_parallel, options.element_bytes
    largest = chosen.graphs.decode[-1] if chosen.graphs.decode else 1
    together = min(batch.max_num_seqs, max(options.least_seqs, largest))
    run = profile_run(sizes, found, replace(batch, max_num_seqs=together), ranks, element)
    sampler = together * (sizes.hidden * element + sizes.vocabulary * (element + 2 * _FP32))
    capability = gpu.compute_capability or (0, 0)
    workspace = run.workspace + (0 if capability[0] == _HOPPER else _FLASHINFER)
    table = (batch.max_num_seqs + 1) * options.max_model_len * _INT32
    return replace(run, buffers=table, workspace=workspace, sampler=sampler)


def _weights(found: RankWeights, spec: ModelSpec, *, latent: bool, ranks: int) -> RankWeights:
    """Rotary tables are in fp32; of latent attention kv_b_proj stands twice, the second time in 16 bits."""
    rotary = found.rotary * 2
    if not latent:
        return replace(found, rotary=rotary)
    copied = sum(
        one.numel // ranks for one in spec.parameters if one.name.endswith("kv_b_proj.weight") and not one.tied_to
    )
    return replace(found, rotary=rotary, copies=max(found.copies, copied * 2))


def _graphs(chosen: Chosen, *, latent: bool) -> Term:
    sizes = chosen.graphs
    if not sizes.decode:
        return Term(name="CUDA graphs", low=0, expected=0, high=0, basis="source", source="none are captured")
    count = len(sizes.decode) + len(sizes.prefill)
    reserved = int(sizes.reserved_mib(latent=latent) * MIB)
    return Term(
        name="CUDA graphs",
        low=min(reserved, count * _GRAPH_LOW),
        expected=reserved,
        high=reserved,
        basis="source",
        source=f"{len(sizes.decode)} sizes up to {sizes.decode[-1]} sequences and {len(sizes.prefill)} of prefill; what"
        " SGLang puts by for them",
    )


def _outside() -> Term:
    return Term(
        name="kernels and libraries",
        low=_OUTSIDE_LOW,
        expected=_OUTSIDE,
        high=_OUTSIDE_HIGH,
        basis="assumed",
        source="what the device loses beside torch once SGLang has looked at what is free",
    )
