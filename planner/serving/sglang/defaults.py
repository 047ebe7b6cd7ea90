"""What SGLang chooses where it is not told.

sglang 0.5.23: srt/arg_groups/memory_hook.py (handle_gpu_memory_settings, reserve_for_graph_mb),
srt/arg_groups/cuda_graph_hook.py (generate_decode_cuda_graph_batch_sizes, generate_prefill_cuda_graph_batch_sizes,
disable_breakable_cudagraph_if_incompatible), srt/arg_groups/overrides.py (_page_size_default), srt/environ.py
(SGLANG_ENABLE_POST_CAPTURE_KV_SIZING, off). MiB where nothing else is said.
"""

from dataclasses import dataclass

from gpu_plan.planner.hardware.gpu import Gpu
from gpu_plan.planner.units import MIB

_BY_MEMORY = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
)
"""Cards with less than so much: tokens of a prefill chunk, sequences of the largest graph on fewer than 4 ranks, on 4
and more."""
_LARGEST = (16384, 512, 512)
_MANY_RANKS = 4
_LATENT_PREFILL = 8192
_CONSTANT, _PER_TOKEN, _PER_SEQUENCE, _PER_PREFILL_GRAPH, _LATENT_GRAPHS = 512, 1.5, 2, 8, 1536
_PER_RANK = 1024 / 8
_LEAST_TOKENS, _ROOMY, _LEAST_ON_ROOMY = 2048, 60 * 1024, 10 * 1024
_BLACKWELL = ((10, 0), (10, 3))
_BLACKWELL_PAGE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """Sizes for which CUDA graphs are captured, ascending."""

    decode: tuple[int, ...]
    """Sequences."""
    prefill: tuple[int, ...]
    """Tokens."""

    def reserved_mib(self, *, latent: bool) -> float:
        """What SGLang itself puts by for them."""
        prefill = 0.0
        if self.prefill:
            prefill = _LATENT_GRAPHS if latent else len(self.prefill) * _PER_PREFILL_GRAPH
        return (self.decode[-1] * _PER_SEQUENCE if self.decode else 0) + prefill


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What SGLang makes of a card."""

    chunk: int
    """Tokens that are prefilled at once."""
    graphs: Graphs
    page: int
    """Tokens of a page of the pool."""
    share: float
    """`mem_fraction_static`: of what is free at the start, weights and pool."""


def choose(
    gpu: Gpu, ranks: int, *, latent: bool, chunk: int | None, running: int | None, eager: bool, prefill_graphs: bool
) -> Chosen:
    """On a card of `ranks` tensor parallel ranks; `chunk` and `running` where they are given."""
    memory = (gpu.usable_bytes or 0) / MIB
    own_chunk, most = _of(memory, ranks)
    tokens = chunk or own_chunk
    if running is not None:
        most = min(most, running)
    graphs = Graphs(decode=(), prefill=())
    if not eager:
        largest = min(_LATENT_PREFILL, tokens) if latent else tokens
        graphs = Graphs(decode=decode_sizes(most), prefill=prefill_sizes(largest) if prefill_graphs else ())
    reserved = _CONSTANT + max(tokens, _LEAST_TOKENS) * _PER_TOKEN + ranks * _PER_RANK
    reserved += graphs.reserved_mib(latent=latent)
    if memory > _ROOMY:
        reserved = max(reserved, _LEAST_ON_ROOMY)
    share = round((memory - reserved) / memory, 3)
    page = _BLACKWELL_PAGE if gpu.compute_capability in _BLACKWELL and not latent else 1
    return Chosen(chunk=tokens, graphs=graphs, page=page, share=share)


def _of(memory: float, ranks: int) -> tuple[int, int]:
    for below, chunk, few, many in _BY_MEMORY:
        if memory < below:
            return chunk, many if ranks >= _MANY_RANKS else few
    return _LARGEST[0], _LARGEST[1]


def decode_sizes(most: int) -> tuple[int, ...]:
    """Sequences of the graphs for decoding."""
    found = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, most + 1, 32)]
    kept = [size for size in found if size <= most]
    return tuple(kept if most in kept else [*kept, most])


def prefill_sizes(most: int) -> tuple[int, ...]:
    """Tokens of the graphs for prefill."""
    found = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    found += [*range(1280, 4097, 256), *range(4608, most + 1, 512)]
    return tuple(size for size in found if size <= most)
