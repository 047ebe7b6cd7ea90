"""A GPT as Megatron-core builds it: what of TransformerConfig and GPTModel decides sizes."""

from typing import Literal

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-latent attention (megatron/core/transformer/multi_latent_attention.py)."""

    query_rank: int | None
    """Width of the compressed query; None: queries are projected at once."""
    key_value_rank: int
    head_dim: int
    """Of a query's and a key's part without position (`qk_head_dim`)."""
    rotary_dim: int
    """Of the part with position (`qk_pos_emb_head_dim`)."""
    value_dim: int
    normed: bool = True
    """Whether what is compressed is normalised before it goes up again (`qk_layernorm`)."""
    stretched: tuple[tuple[str, float], ...] = ()
    """How positions are stretched (YaRN), by the name of the argument; it decides no size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture-of-experts layers (megatron/core/transformer/moe)."""

    count: int
    chosen: int
    """Experts that a token goes to."""
    width: int
    """Intermediate size of one."""
    shared_width: int = 0
    """Intermediate size of those that every token goes to, all together; 0: none."""
    dense_layers: int = 0
    """First layers without experts."""
    every: int = 1
    """One layer in so many has experts."""
    score: Literal["softmax", "sigmoid"] = "softmax"
    first_softmax: bool = False
    """Whether the softmax is over all experts, before they are chosen (`moe_router_pre_softmax`)."""
    biased: bool = False
    """Whether a bias that is no parameter keeps experts equally busy (`moe_router_enable_expert_bias`)."""
    groups: int = 0
    """Groups of experts, of which a token chooses some first; 0: none."""
    chosen_groups: int = 0
    scale: float | None = None
    """Of the weights of the chosen ones (`moe_router_topk_scaling_factor`); it decides no size."""
    balance: Literal["aux_loss", "seq_aux_loss", "sinkhorn", "none"] = "none"
    """What keeps experts equally busy (`moe_router_load_balancing_type`)."""
    balance_weight: float = 0.0
    """Of that loss (`moe_aux_loss_coeff`); it decides no size, but what is trained."""

    def has(self, layer: int) -> bool:
        """Whether the layer, counted from 0, has experts."""
        return layer >= self.dense_layers and (layer + 1) % self.every == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One decoder; sizes of the whole model, not of a rank."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    groups: int
    """Heads of keys and values."""
    head_dim: int
    vocabulary: int
    """Tokens, before they are padded."""
    gated: bool = True
    norm: Literal["rms", "layer"] = "rms"
    biases: bool = False
    """Of linear layers (`add_bias_linear`)."""
    query_biases: bool = False
    """Of the projection to queries, keys and values alone (`add_qkv_bias`)."""
    query_norm: bool = False
    """Whether queries and keys are normalised by head (`qk_layernorm`)."""
    tied: bool = False
    positions: int = 0
    """Learned positions; 0: rotary ones, or none."""
    rotary: bool = True
    rotary_base: float | None = None
    """Of its angles; None: the default. It decides no size, but what is trained."""
    rotary_share: float = 1.0
    """Of a head that is rotated (`rotary_percent`); it decides no size."""
    norm_epsilon: float | None = None
    """As above."""
    rotary_factor: float | None = None
    """By which Llama 3.1 and later stretch them; None: not at all."""
    latent: LatentAttention | None = None
    experts: Experts | None = None
    next_tokens: int = 0
    """Layers that predict further tokens, on the last stage (`mtp_num_layers`)."""

    def padded_vocabulary(self, tensor_parallel: int, divisor: int = 128) -> int:
        """As megatron/training/tokenizer pads it: to a multiple of 128 for each tensor parallel rank."""
        multiple = divisor * tensor_parallel
        return ceil_div(self.vocabulary, multiple) * multiple

    def key(self) -> str:
        """Stable text that names it in caches."""
        return repr(self)
