"""What a layer without attention keeps of a request, however long it is: Mamba's states and those of gated delta nets.

vLLM 0.33.0: model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator: mamba1_state_shape,
mamba2_state_shape, gated_delta_net_state_shape; MambaStateDtypeCalculator), mamba/mamba_mixer2.py (get_kv_cache_spec:
one block for a checkpoint inside a prefill), mamba/gdn/qwen_gdn_linear_attn.py (_resolve_gdn_prefill_backend,
get_kv_cache_spec), model_executor/models/config.py (MambaModelConfig, NemotronHForCausalLMConfig,
Qwen3_5ForConditionalGenerationConfig: types of states), config/model.py (is_prefix_caching_supported),
v1/kv_cache_interface.py (MambaSpec), and each model's get_mamba_state_shape_from_config.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_plan.planner.dtypes import tensor_bytes
from gpu_plan.planner.model.spec import ParameterSpec
from gpu_plan.planner.units import ceil_div

LINEAR = "linear_attention"
"""transformers' word for a layer that keeps a state."""
_FREE = frozenset({"mamba", "mamba2", "falcon_mamba"})
"""Models without any attention: their prefixes are not cached."""
_FLASHINFER = 64
"""Tokens that a block is a multiple of where FlashInfer's kernel writes states inside a prefill."""
_WITHOUT_CHECKPOINTS = frozenset({"olmo_hybrid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """Sizes of one Mamba layer; `heads` is 0 of Mamba-1."""

    inner: int
    state: int
    convolution: int
    heads: int = 0
    head: int = 0
    groups: int = 0

    def groups_of(self, ranks: int) -> int:
        """Groups of all ranks together: one group is copied to each (extra_groups_for_head_shards)."""
        return self.groups if self.groups % ranks == 0 else ranks

    def convolved(self, ranks: int) -> int:
        """Channels of the convolution, of all ranks together."""
        return self.inner + 2 * self.groups_of(ranks) * self.state

    def refusal(self, ranks: int) -> str | None:
        """Why it cannot be split."""
        if not self.heads:
            return f"splits {self.inner} channels of a state" if self.inner % ranks else None
        if self.heads % ranks:
            return f"splits {self.heads} heads of a state"
        return f"splits {self.groups} groups of a state" if self.groups > 1 and self.groups % ranks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What one layer keeps of one request on one rank."""

    nbytes: int
    blocks: int
    """That a request takes of it."""
    aligned: int = 1
    """Tokens that a block's length is a multiple of."""


def attention_free(config: Mapping[str, Any]) -> bool:
    """Whether no layer attends."""
    return config.get("model_type") in _FREE


def mixer(config: Mapping[str, Any]) -> Mixer | None:
    """Of a model with Mamba layers, by its type; None of others."""
    kind, one = config.get("model_type"), config.get
    hidden = one("hidden_size") or 0
    if kind in ("mamba", "falcon_mamba"):
        return Mixer(inner=config["intermediate_size"], state=config["state_size"], convolution=config["conv_kernel"])
    if kind == "jamba":
        inner = config["mamba_expand"] * hidden
        return Mixer(inner=inner, state=config["mamba_d_state"], convolution=config["mamba_d_conv"])
    if kind == "mamba2":
        inner, names = int(config["expand"] * hidden), ("num_heads", "head_dim", "n_groups", "state_size")
        return _second(config, inner, names, config["conv_kernel"])
    if kind == "nemotron_h":
        inner = config["mamba_num_heads"] * config["mamba_head_dim"]
        names = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size")
        return _second(config, inner, names, config["conv_kernel"])
    if kind in ("falcon_h1", "granitemoehybrid"):
        inner = int(one("mamba_d_ssm") or config["mamba_expand"] * hidden)
        names = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state")
        return _second(config, inner, names, config["mamba_d_conv"])
    return None


def _second(config: Mapping[str, Any], inner: int, names: tuple[str, str, str, str], convolution: int) -> Mixer:
    heads, head, groups, state = (int(config[name]) for name in names)
    return Mixer(inner=inner, state=state, convolution=convolution, heads=heads, head=head, groups=groups)


def layers_with_states(config: Mapping[str, Any]) -> list[str] | None:
    """Caches of a model with Mamba layers, first to last, in transformers' words; None of others.

    A layer that attends and keeps a state has two, one of experts or an MLP alone none.
    """
    if mixer(config) is None:
        return None
    kind, layers = config.get("model_type"), int(config.get("num_hidden_layers") or 0)
    if kind in _FREE:
        return [LINEAR] * layers
    if kind == "falcon_h1":
        return ["full_attention", LINEAR] * layers
    if kind == "jamba":
        period, offset = config["attn_layer_period"], config["attn_layer_offset"]
        return ["full_attention" if i % period == offset else LINEAR for i in range(layers)]
    named = config.get("layers_block_type") if kind == "nemotron_h" else config.get("layer_types")
    words = {"mamba": LINEAR, "attention": "full_attention"}
    kinds = [words.get(str(one), str(one)) for one in named or ()]
    return [one for one in kinds if one in (LINEAR, "full_attention")]


def keeps_known_states(config: Mapping[str, Any]) -> bool:
    """Whether the layers without attention keep a state whose size is known."""
    nets = bool(config.get("linear_num_value_heads")) and isinstance(config.get("layer_types"), list)
    return nets or mixer(config) is not None


def state_of(
    config: Mapping[str, Any], ranks: int, computed_bytes: int, capability: tuple[int, int] | None = None
) -> State:
    """Of a model that `keeps_known_states`; `capability` of the device decides which kernel of a delta net runs."""
    found = mixer(config)
    if found is None:
        return _delta_net(config, ranks, computed_bytes, capability)
    behind = (found.convolution - 1) * found.convolved(ranks) // ranks * computed_bytes
    if not found.heads:
        matrix = found.inner // ranks * found.state * computed_bytes
        return State(nbytes=behind + matrix, blocks=1 if attention_free(config) else 2)
    wide = computed_bytes
    if config.get("model_type") == "nemotron_h" and config.get("mamba_ssm_cache_dtype", "float32") == "float32":
        wide = 4
    matrix = found.heads // ranks * found.head * found.state * wide
    return State(nbytes=behind + matrix, blocks=1 if attention_free(config) else 3)


def _delta_net(config: Mapping[str, Any], ranks: int, computed_bytes: int, capability: tuple[int, int] | None) -> State:
    """A gated delta net's convolution and its matrix for each head."""
    keys, values = config.get("linear_num_key_heads") or 0, config.get("linear_num_value_heads") or 0
    key, value = config.get("linear_key_head_dim") or 0, config.get("linear_value_head_dim") or 0
    behind = (config.get("linear_conv_kernel_dim") or 1) - 1
    wide = 4 if config.get("mamba_ssm_dtype") == "float32" else computed_bytes
    convolved = behind * (2 * key * keys + value * values) // ranks
    nbytes = convolved * computed_bytes + values // ranks * value * key * wide
    writes = config.get("model_type") not in _WITHOUT_CHECKPOINTS and _flashinfer(capability, key)
    return State(nbytes=nbytes, blocks=3, aligned=_FLASHINFER) if writes else State(nbytes=nbytes, blocks=2)


def _flashinfer(capability: tuple[int, int] | None, key: int) -> bool:
    """Whether FlashInfer's kernel is chosen: Hopper; Blackwell with keys of 128 under CUDA 13."""
    if capability is None:
        return False
    return capability == (9, 0) or (capability[0] in (10, 12) and key == 128)


def widened(config: Mapping[str, Any], ranks: int) -> Callable[[ParameterSpec], int | None]:
    """Bytes of a Mamba-2 layer's projection and convolution on one rank, whose only group is copied to each."""
    found = mixer(config)

    def held(parameter: ParameterSpec) -> int | None:
        module = parameter.name.split(".")[-2:-1]
        if found is None or found.groups_of(ranks) == found.groups or module not in (["in_proj"], ["conv1d"]):
            return None
        own, whole = found.convolved(ranks), found.convolved(1)
        beside = found.inner + found.heads if module == ["in_proj"] else 0
        elements = ceil_div(parameter.numel * (own + beside), whole + beside)
        return tensor_bytes(ceil_div(elements, ranks), parameter.dtype)

    return held
