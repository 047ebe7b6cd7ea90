"""What one tensor parallel rank of vLLM loads: the model's parameters, split as vLLM's layers split them.

vLLM 0.33.0: model_executor/layers/linear.py (ColumnParallelLinear, RowParallelLinear, QKVParallelLinear,
ReplicatedLinear), layers/vocab_parallel_embedding.py (pad_vocab_size, 64), layers/rotary_embedding/base.py
(_compute_cos_sin_cache: one row a position, in the model's type), rotary_embedding/linear_scaling_rope.py (a row for
every scaled position), rotary_embedding/mrope.py (MRotaryEmbedding: four times the positions),
layers/attention/mla_attention.py
(process_weights_after_loading: copies of a quantised kv_b_proj).
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.dtypes import element_bits, tensor_bytes
from gpu_plan.planner.model.spec import ModelSpec, ParameterSpec
from gpu_plan.planner.serving.layers import Heads, latent_size
from gpu_plan.planner.serving.profile import Sizes, sizes_of
from gpu_plan.planner.units import ceil_div, round_up

VOCABULARY_PADDING = 64
_KEY_VALUE = frozenset({"k_proj", "v_proj"})
_FUSED = frozenset({"qkv_proj", "query_key_value", "c_attn", "Wqkv", "qkv"})
_WHOLE = frozenset(
    {"gate", "router", "q_a_proj", "kv_a_proj_with_mqa", "shared_expert_gate", "weights_proj", "wq_b", "wk"}
)
"""Modules that vLLM builds as ReplicatedLinear: routers, and what compresses queries, keys and values."""
_ROW_PARALLEL = frozenset({"o_proj", "down_proj", "c_proj", "out_proj", "fc2", "dense", "dense_4h_to_h", "w2", "wo"})
"""Modules whose output is summed over ranks: their bias is whole on each."""
_MANY_POSITIONS = 4.0
"""Of those of a model whose images and videos have positions too."""
_UNROTATED = frozenset({"nemotron_h", "jamba"})
"""Models whose configs may name a rotation that vLLM's classes do not build (models/nemotron_h.py, jamba.py)."""
_EXPERTS = ".experts."
"""In the names of experts that a router chooses among; shared ones are `shared_experts`."""
_BLOCK = re.compile(r"\.\d+\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Bytes that stay on one rank once the model is loaded."""

    parameters: int
    rotary: int
    """Cosines and sines of every position."""
    copies: int
    """Weights that are kept a second time, in another layout or type."""
    looked_up: int = 0
    """Of the parameters: tables of which a token reads a row, such as an embedding that is not the head as well."""
    routed: int = 0
    """Of the parameters: experts, of which a token reads `share`."""
    share: float = 1.0

    @property
    def nbytes(self) -> int:
        """What vLLM logs as `Model loading took`."""
        return self.parameters + self.rotary + self.copies

    def read(self, tokens: int) -> tuple[int, int, int]:
        """Bytes that a step of one token of each of `tokens` requests reads: where all choose the same experts, where
        each chooses at random, and where no two choose the same."""
        always = self.parameters - self.looked_up - self.routed
        shares = (self.share, 1.0 - (1.0 - self.share) ** tokens, min(1.0, tokens * self.share))
        least, expected, most = (always + round(share * self.routed) for share in shares)
        return least, expected, most


Held = Callable[[ParameterSpec], int | None]
"""Bytes of a parameter on one rank where a kernel lays it out in a way of its own; None of others."""


def rank_weights(
    spec: ModelSpec,
    config: Mapping[str, Any],
    heads: Heads,
    ranks: int,
    element_bytes: int,
    held: Held = lambda _: None,
) -> RankWeights:
    """Of the first of `ranks`; `element_bytes`: of the type of the computation."""
    own = [parameter for parameter in spec.parameters if parameter.tied_to is None]

    def nbytes(one: ParameterSpec) -> int:
        kept = held(one)
        return tensor_bytes(_elements(one, spec, heads, ranks), one.dtype) if kept is None else kept

    return RankWeights(
        parameters=sum(nbytes(one) for one in own),
        rotary=_rotary(config, heads) * element_bytes,
        copies=sum(_copied(one, ranks) for one in own) * element_bytes,
        looked_up=_looked_up([nbytes(one) for one in own if _of_words(one, spec)]),
        routed=sum(nbytes(one) for one in own if _EXPERTS in one.name),
        share=_share(sizes_of(config)),
    )


def _of_words(parameter: ParameterSpec, spec: ModelSpec) -> bool:
    """Whether it has a row for each word: an embedding or the head."""
    shape = parameter.shape
    return len(shape) > 1 and shape[0] == spec.vocab_size and _BLOCK.search(parameter.name) is None


def _looked_up(tables: list[int]) -> int:
    """Of tables with a row for each word, one is multiplied with, as the head; which one is not said: the smallest."""
    return sum(tables) - min(tables, default=0)


def _share(sizes: Sizes) -> float:
    """Of a layer's experts that one token goes through."""
    return min(1.0, sizes.experts_per_token / sizes.experts) if sizes.experts and sizes.experts_per_token else 1.0


def _elements(parameter: ParameterSpec, spec: ModelSpec, heads: Heads, ranks: int) -> int:
    """Of one parameter on one rank."""
    shape, path = parameter.shape, parameter.name.split(".")
    module = path[-2] if len(path) > 1 else ""
    if shape and shape[0] == spec.vocab_size and _BLOCK.search(parameter.name) is None:
        padded = round_up(shape[0], VOCABULARY_PADDING)
        return ceil_div(padded, ranks) * math.prod(shape[1:])
    if ranks == 1 or module in _WHOLE or _BLOCK.search(parameter.name) is None:
        return parameter.numel
    if len(shape) < 2 and (path[-1] != "bias" or module in _ROW_PARALLEL or "norm" in module):
        return parameter.numel
    if module in _KEY_VALUE:
        return ceil_div(parameter.numel * heads.key_values_of(ranks), heads.key_value)
    if module in _FUSED:
        whole = heads.query + 2 * heads.key_value
        return ceil_div(parameter.numel * (heads.query // ranks + 2 * heads.key_values_of(ranks)), whole)
    return ceil_div(parameter.numel, ranks)


def _rotary(config: Mapping[str, Any], heads: Heads) -> int:
    """Elements of the tables of all rotations; layers of one kind share one."""
    if config.get("model_type") in _UNROTATED or config.get("position_embedding_type") == "nope":
        return 0
    positions = config.get("max_position_embeddings")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    turns = rope or config.get("rope_theta")
    if not isinstance(positions, int) or not turns:
        return 0
    kinds = [value for value in rope.values() if isinstance(value, Mapping)] if isinstance(rope, Mapping) else []
    latent = config.get("qk_rope_head_dim") if latent_size(config) is not None else None
    share = config.get("partial_rotary_factor") or (rope.get("partial_rotary_factor") if rope else None) or 1
    width = latent if isinstance(latent, int) else int(heads.size * float(share))
    return sum(int(positions * _stretched(one)) for one in kinds or [rope]) * width


def _stretched(rope: object) -> float:
    """Rows of a rotation's table for each position of the model."""
    if not isinstance(rope, Mapping):
        return 1.0
    if "mrope_section" in rope and not rope.get("mrope_interleaved"):
        return _MANY_POSITIONS  # Qwen3-VL's, which are interleaved, never exceed the tokens: models/qwen3_vl.py
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    return float(factor) if kind == "linear" and isinstance(factor, int | float) else 1.0


def _copied(parameter: ParameterSpec, ranks: int) -> int:
    """Elements of a quantised kv_b_proj, which decoding reads in the type of the computation."""
    path = parameter.name.split(".")
    quantised = element_bits(parameter.dtype) < 16 and len(parameter.shape) >= 2
    return parameter.numel // ranks if quantised and len(path) > 1 and path[-2] == "kv_b_proj" else 0
