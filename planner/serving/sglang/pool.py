"""SGLang's pool: tokens that weights leave room for, and how many requests they are.

sglang 0.5.23: srt/model_executor/pool_configurator.py (DefaultPoolConfigurator._compute_cell_size,
HybridSWAPoolConfigurator._recompute_cell_size and _solve_pool_sizes, compute_swa_request_cap),
srt/configs/model_config.py (get_num_kv_heads, is_hybrid_swa_model),
srt/arg_groups/fields/schedule.py (swa_full_tokens_ratio, 0.8),
srt/arg_groups/model_overrides/gemma2_gemma3.py (no pool of their own for sliding layers).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.serving.layers import LayerCache
from gpu_plan.planner.units import round_up

_RATIO = 0.8
"""Tokens of the sliding layers' pool for each of the full layers'."""
_EVICTION = 128
"""srt/environ.py: SGLANG_SWA_EVICTION_INTERVAL."""
_APART = frozenset(
    {
        "Llama4ForConditionalGeneration", "GptOssForCausalLM", "GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM",
        "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration",
        "LagunaForCausalLM", "MellumForCausalLM", "Step3p5ForCausalLM",
    }
)  # fmt: skip
"""Architectures whose sliding layers have a pool of their own; of all others every layer keeps every token."""
_OTHER = {
    "index_topk": "an index beside its keys and values",
    "hybrid_layer_pattern": "layers of two head sizes",
}
"""What a config says of a cache that is not computed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Bytes of a token of one rank, in the full layers' pool and in the sliding ones'."""

    full: int
    sliding: int = 0
    """0: there is one pool."""
    window: int = 0
    page: int = 1

    @property
    def bytes_per_token(self) -> float:
        """Of a token of the full layers' pool, with its share of the other."""
        return self.full + _RATIO * self.sliding

    @property
    def block_tokens(self) -> int:
        """Tokens of a page."""
        return self.page

    @property
    def bytes_per_block(self) -> int:
        """Of a page, in both pools."""
        return round(self.bytes_per_token * self.page)

    def tokens(self, available: int) -> int:
        """That the full layers' pool has."""
        return int(max(0, available) // self.bytes_per_token) // self.page * self.page

    def concurrency(self, available: int, tokens: int, in_flight: int) -> float:
        """Requests of so many tokens; `in_flight` of a prefill stand in the sliding pool beside their windows."""
        full = self.tokens(available)
        held = full / round_up(tokens, self.page)
        if not self.sliding:
            return held
        behind = round_up(int(full * _RATIO), self.page) - in_flight
        each = min(round_up(tokens, self.page), self.window + _EVICTION + 2 * self.page)
        return max(0.0, min(held, behind / each))

    def longest(self, available: int, most: int, in_flight: int, requests: int = 1) -> int:
        """Tokens of the longest requests of which so many fit at once."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.concurrency(available, middle, in_flight) >= requests:
                low = middle
            else:
                high = middle - 1
        return low


def pool_of(layers: Sequence[LayerCache], config: Mapping[str, Any], page: int) -> Pool:
    """Of a model's layers on one rank. UsageError for a cache of another kind."""
    for key, what in _OTHER.items():
        if config.get(key):
            raise UsageError(f"--server sglang: the model keeps {what}, whose pool is not computed in this version")
    if any(layer.kind == "state" for layer in layers):
        raise UsageError("--server sglang: layers of linear attention keep a state whose pool is not computed here")
    architectures = config.get("architectures") or ()
    apart = any(name in _APART for name in architectures)
    behind = [layer for layer in layers if layer.kind != "full" and layer.window] if apart else []
    if not behind:
        return Pool(full=sum(layer.bytes_per_token for layer in layers), page=page)
    full = [layer for layer in layers if layer.kind == "full"]
    if not full:
        raise UsageError("--server sglang: a model of sliding layers alone has a pool that is not computed")
    return Pool(
        full=sum(layer.bytes_per_token for layer in full),
        sliding=sum(layer.bytes_per_token for layer in behind),
        window=max(layer.window or 0 for layer in behind),
        page=page,
    )
