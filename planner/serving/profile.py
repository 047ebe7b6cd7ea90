"""What the run takes that vLLM measures itself by: one batch of dummy tokens, then the sampler.

vLLM 0.33.0: v1/worker/gpu/model_runner.py (profile_run, _dummy_run, _dummy_sampler_run), v1/worker/gpu/sample/
sampler.py (apply_sampling_params: a copy in fp32; _sample_random), v1/sample/ops/topk_topp_sampler.py
(flashinfer_sample: softmax and mask of the whole vocabulary), v1/worker/gpu/sample/penalties.py (PenaltiesState),
model_executor/models/llama.py (LlamaDecoderLayer, LlamaMLP), layers/fused_moe/experts/triton_moe.py
(workspace_shapes) and layers/fused_moe/modular_kernel.py (_allocate_buffers).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.serving.layers import Heads
from gpu_plan.planner.serving.states import mixer
from gpu_plan.planner.units import ceil_div

_FP32 = 4
_MASK_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How much is computed together."""

    max_num_batched_tokens: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What of a text config decides how wide a layer's tensors are."""

    hidden: int
    intermediate: int
    """Of a dense layer; 0 where every layer is a mixture of experts."""
    expert: int
    experts_per_token: int
    """0 without experts."""
    vocabulary: int
    experts: int = 0
    """Of one layer that has them."""
    linear: int = 0
    """Queries, keys, values and gates of a layer of linear attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRun:
    """Bytes of one rank beyond its weights."""

    buffers: int
    """What the sampler keeps for every request from the start."""
    workspace: int
    """What a mixture of experts computes in, kept once it has grown."""
    forward: int
    """Most that the layers hold at once."""
    sampler: int
    """Most that sampling holds at once, hidden states included."""

    @property
    def transient(self) -> int:
        """The higher of the two moments: given back, and kept free for them."""
        return max(self.forward, self.sampler)


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """Of a text config with its class's defaults."""

    def number(*names: str) -> int:
        found = (config.get(name) for name in names)
        return next((value for value in found if isinstance(value, int) and value > 0), 0)

    hidden = number("hidden_size", "n_embd", "d_model")
    experts = number("num_experts", "num_local_experts", "n_routed_experts")
    kinds = config.get("layers_block_type")
    if isinstance(kinds, list) and "mlp" in kinds and "moe" not in kinds:
        experts = 0  # Nemotron-H's class has a default of 8 that its dense models do not use
    dense = number("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size") or 4 * hidden
    return Sizes(
        hidden=hidden,
        intermediate=dense,
        expert=(number("moe_intermediate_size") or dense) if experts else 0,
        experts_per_token=number("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_top_k")
        if experts
        else 0,
        vocabulary=number("vocab_size"),
        experts=experts,
        linear=_projected(config)
        or 2 * number("linear_num_key_heads") * number("linear_key_head_dim")
        + 2 * number("linear_num_value_heads") * number("linear_value_head_dim"),
    )


def _projected(config: Mapping[str, Any]) -> int:
    """Of a Mamba layer: gate and input, of Mamba-2 the groups and steps too (mamba_mixer.py, mamba_mixer2.py)."""
    found = mixer(config)
    return 0 if found is None else found.inner + found.convolved(1) + (found.heads or found.inner)


def profile_run(sizes: Sizes, heads: Heads, batch: Batching, ranks: int, element_bytes: int) -> ProfileRun:
    """Of one batch of `max_num_batched_tokens`, sampled by `max_num_seqs` requests."""
    tokens, seqs = batch.max_num_batched_tokens, min(batch.max_num_seqs, batch.max_num_batched_tokens)
    element = element_bytes
    stream = tokens * sizes.hidden * element
    attended = tokens * ceil_div(max((heads.query + 2 * heads.key_value) * heads.size, sizes.linear), ranks) * element
    gated = tokens * ceil_div(3 * sizes.intermediate, ranks) * element
    # The residual stands beside the gate and up products and what activates them, or beside queries, keys and values,
    # what is attended to and its projection.
    forward = stream + max(gated, 2 * stream + attended)
    workspace = 0
    if sizes.experts_per_token:
        first = max(ceil_div(sizes.expert, ranks), sizes.hidden)
        second = max(ceil_div(2 * sizes.expert, ranks), sizes.hidden)
        workspace = tokens * sizes.experts_per_token * (first + second) * element
        forward = stream + 2 * stream + attended
    logits = seqs * sizes.vocabulary
    sampler = stream + seqs * sizes.hidden * element + logits * (element + 3 * _FP32)
    return ProfileRun(
        buffers=seqs * (sizes.vocabulary + ceil_div(sizes.vocabulary, _MASK_BITS)) * _FP32,
        workspace=workspace,
        forward=forward,
        sampler=sampler,
    )
