"""Blocks of vLLM's cache: how layers share them, how many a request takes, how many there are.

vLLM 0.33.0: v1/core/kv_cache_planning.py (get_kv_cache_groups, unify_kv_cache_spec_page_size,
_get_kv_cache_groups_uniform_page_size, get_kv_cache_config_from_groups), v1/core/kv_cache_utils.py
(get_max_concurrency_for_kv_cache_config), v1/kv_cache_interface.py (max_admission_blocks_per_request, MambaSpec:
max_memory_usage_bytes), platforms/interface.py (_align_hybrid_block_size), model_executor/models/config.py
(MambaModelConfig: prefix caching, which is on where a layer attends, aligns states with blocks).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_plan.planner.serving.layers import LayerCache
from gpu_plan.planner.units import ceil_div

_MANY = 1.5
"""How many times as many layers of one kind there must be for groups to be of the fewer's size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers that share block ids."""

    layer: LayerCache
    layers: int
    """How many lie in a block of the group, padding left out."""
    block_size: int
    """Tokens of a block."""
    states: int = 0
    """Blocks of a request, of layers that keep a state."""

    def blocks(self, tokens: int, in_flight: int) -> int:
        """Blocks that a request of so many tokens takes; `in_flight` tokens may be computed at once."""
        window = self.layer.window
        if self.layer.kind == "state":
            return self.states
        if self.layer.kind == "full" or window is None:
            return ceil_div(tokens, self.block_size)
        if self.layer.kind == "chunked":
            return ceil_div(min(window + in_flight, tokens), self.block_size)
        return ceil_div(min(window - 1 + in_flight, tokens), self.block_size) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """How a model's cache is laid out; bytes of one rank."""

    groups: tuple[Group, ...]
    bytes_per_block: int
    """Of a block id: the widest group's layers."""

    @property
    def block_tokens(self) -> int:
        """Tokens of a block of the first group that keeps tokens."""
        return next((one for one in self.groups if one.layer.kind != "state"), self.groups[0]).block_size

    def blocks_per_request(self, tokens: int, in_flight: int) -> int:
        """Block ids that a request takes of all groups."""
        return sum(group.blocks(tokens, in_flight) for group in self.groups)

    def concurrency(self, available: int, tokens: int, in_flight: int) -> float:
        """Requests of so many tokens that the bytes hold at once, as vLLM logs it; 0 where there is nothing."""
        return max(0, available // self.bytes_per_block) / self.blocks_per_request(tokens, in_flight)

    def longest(self, available: int, most: int, in_flight: int, requests: int = 1) -> int:
        """Tokens of the longest requests of which so many fit at once, at most `most`; 0 where none does."""
        blocks = max(0, available // self.bytes_per_block) // requests
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_per_request(middle, in_flight) <= blocks:
                low = middle
            else:
                high = middle - 1
        return low


def cache_layout(layers: Sequence[LayerCache], block_size: int) -> CacheLayout:
    """Of layers that are alike one group; of several kinds as many groups of equally many layers as there are.

    Layers whose page is smaller take larger blocks, where that makes pages equal; others are padded.
    """
    kinds = list(dict.fromkeys(layers))
    block_size = _holding_states(kinds, block_size)
    page = max(layer.bytes_per_token for layer in kinds) * block_size
    if len({(layer.kind, layer.window) for layer in kinds}) == 1:
        whole = sum(layer.bytes_per_token * block_size + layer.state_bytes for layer in layers)
        group = Group(layer=kinds[0], layers=len(layers), block_size=block_size, states=kinds[0].state_blocks)
        return CacheLayout(groups=(group,), bytes_per_block=whole)
    counts = [sum(layer == kind for layer in layers) for kind in kinds]
    size = min(counts)
    if max(counts) < size * _MANY:
        size = max(counts)
    groups = [
        Group(
            layer=kind,
            layers=min(size, count),
            block_size=_block_size(kind, page, block_size),
            states=kind.state_blocks,
        )
        for kind, count in zip(kinds, counts, strict=True)
        for _ in range(ceil_div(count, size))
    ]
    return CacheLayout(groups=tuple(groups), bytes_per_block=page * size)


def _holding_states(kinds: Sequence[LayerCache], block_size: int) -> int:
    """Tokens of a block whose page is at least that of the largest state, which is padded to it."""
    state, token = max(layer.state_bytes for layer in kinds), max(layer.bytes_per_token for layer in kinds)
    if not state or not token:
        return block_size
    step = math.lcm(block_size, *(layer.aligned for layer in kinds))
    return max(block_size, step * ceil_div(state, step * token))


def _block_size(layer: LayerCache, page: int, block_size: int) -> int:
    own = layer.bytes_per_token * block_size or page
    return block_size * (page // own) if page % own == 0 else block_size
