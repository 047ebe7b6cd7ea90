"""The sizes in a config that decide how much is built: whole numbers within what any model could mean."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.config_reader import shown
from gpu_plan.planner.model.config_values import check_rotation, check_routing, check_value
from gpu_plan.planner.plain.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a key may hold."""

    largest: int
    why: str
    """What the bound rests on, for the message."""
    smallest: int = 1
    fraction: bool = False
    """Whether a number with decimals is meaningful."""
    listed: bool = False
    """Whether a list, one value per layer, stage or axis, is meaningful."""
    smallest_listed: int | None = None
    """The smallest in a list, where that is not `smallest`: a layer may go without."""


_LAYERS = Bound(largest=2_000, why="no model is deeper")
_SOME_LAYERS = Bound(largest=2_000, why="no model is deeper", smallest=0)
_STAGES = Bound(largest=2_000, why="no model is deeper", smallest=0, listed=True)
_WIDTH = Bound(largest=10_000_000, why="no layer is wider")
_WIDTHS = Bound(largest=10_000_000, why="no layer is wider", smallest=0, listed=True)
_INNER = Bound(largest=10_000_000, why="no layer is wider", listed=True, smallest_listed=0)
_HEADS = Bound(largest=100_000, why="no layer has more heads", listed=True)
_VOCABULARY = Bound(largest=100_000_000, why="no vocabulary is larger")
_EXPERTS = Bound(largest=100_000, why="no model has more experts", smallest=0, listed=True)
_POSITIONS = Bound(largest=1_000_000_000, why="no model is made for longer sequences")
_LABELS = Bound(largest=10_000_000, why="no head has more classes", smallest=0)
_PIXELS = Bound(largest=100_000, why="no model reads larger images", listed=True)
_KERNEL = Bound(largest=100_000, why="no kernel is larger", listed=True)
_FACTOR = Bound(largest=10_000, why="no layer widens more", fraction=True)


def _table(*groups: tuple[Bound, str]) -> dict[str, Bound]:
    return {name: bound for bound, names in groups for name in names.split()}


BOUNDS: dict[str, Bound] = _table(
    (
        _LAYERS,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers num_encoder_layers"
        " num_hidden_groups vt_num_hidden_layers",
    ),
    (
        _SOME_LAYERS,
        "decoder_layers num_decoder_layers mtp_num_hidden_layers num_nextn_predict_layers"
        " first_k_dense_replace num_global_layers num_kv_shared_layers num_hash_layers"
        " num_feat_extract_layers inner_group_num num_adapter_layers num_mtp_modules"
        " mtp_transformer_layers",
    ),
    (_STAGES, "depth depths"),
    (
        _WIDTH,
        "hidden_size d_model n_embd n_embed dim embedding_size d_ff d_kv head_dim attention_head_dim"
        " kv_channels global_head_dim encoder_ffn_dim decoder_ffn_dim ffn_hidden_size qk_head_dim"
        " qk_nope_head_dim qk_rope_head_dim v_head_dim word_embed_proj_dim projection_dim lru_width"
        " linear_key_head_dim linear_value_head_dim mamba_head_dim mamba_d_state state_size"
        " ssm_state_size out_hidden_size projection_size vt_hidden_size vt_intermediate_size"
        " text_hidden_size num_mel_bins num_channels in_channels in_chans index_head_dim kv_lora_rank"
        " time_step_rank mamba_dt_rank vision_output_dim output_hidden_size",
    ),
    (
        _INNER,
        "intermediate_size intermediate_size_mlp moe_intermediate_size moe_shared_expert_intermediate_size hidden_dim"
        " ffn_dim n_inner embed_dim",
    ),
    (
        _WIDTHS,
        "shared_intermediate_size shared_expert_intermediate_size hidden_sizes conv_dim tdnn_dim q_lora_rank"
        " o_lora_rank hidden_size_per_layer_input block_out_channels adapter_attn_dim pooler_hidden_size"
        " classifier_proj_size xvector_output_dim codevector_dim",
    ),
    (
        _HEADS,
        "num_attention_heads n_head n_heads num_heads attention_heads encoder_attention_heads"
        " decoder_attention_heads num_key_value_heads num_kv_heads kv_n_heads num_global_key_value_heads"
        " linear_num_key_heads linear_num_value_heads mamba_num_heads mamba_n_heads index_n_heads"
        " vt_num_attention_heads n_groups",
    ),
    (_VOCABULARY, "vocab_size vocab_size_per_layer_input"),
    (
        _EXPERTS,
        "num_experts num_local_experts n_routed_experts n_shared_experts moe_num_experts"
        " num_experts_per_tok experts_per_token moe_top_k top_k_experts num_shared_experts",
    ),
    (
        _POSITIONS,
        "max_position_embeddings n_positions n_ctx max_seq_len max_source_positions max_target_positions"
        " original_max_position_embeddings",
    ),
    (_LABELS, "type_vocab_size num_labels num_register_tokens"),
    (_PIXELS, "image_size patch_size spatial_patch_size temporal_patch_size spatial_merge_size"),
    (_KERNEL, "conv_kernel d_conv mamba_d_conv conv1d_width linear_conv_kernel_dim conv_stride patch_stride"),
    (_FACTOR, "mlp_ratio expand mamba_expand expansion_ratio ffn_dim_multiplier"),
)
"""Keys that size a model, as transformers' config classes name them; others are left to those classes."""

MAX_LISTED = 10_000
_NOT_SIZES = frozenset({"id2label", "label2id", "task_specific_params", "quantization_config", "auto_map"})
_OF_TYPE: dict[str, tuple[type, str]] = {
    "tie_word_embeddings": (bool, "true or false"),
    "is_encoder_decoder": (bool, "true or false"),
    "use_cache": (bool, "true or false"),
    "torch_dtype": (str, "a name such as 'bfloat16'"),
    "dtype": (str, "a name such as 'bfloat16'"),
    "text_config": (dict, "an object"),
    "vision_config": (dict, "an object"),
    "audio_config": (dict, "an object"),
    "quantization_config": (dict, "an object"),
    "auto_map": (dict, "an object"),
    "layer_types": (list, "a list, one name per layer"),
}


def validate_config(config: dict[str, Any], where: str) -> None:
    """Raises InputError naming file, key, value and remedy if a size, nested ones included, makes no sense.

    `null` is allowed everywhere: it means the class's default. Whether sizes agree with each other is for the
    model's class to say.
    """
    for prefix, mapping in _mappings(config):
        if prefix.endswith(("rope_scaling.", "rope_parameters.")):
            check_rotation(mapping, prefix, where)
        check_routing(mapping, prefix, where)
        for key, value in mapping.items():
            if value is None:
                continue
            name = f"{prefix}{key}"
            expected = _OF_TYPE.get(key)
            if expected is not None and not isinstance(value, expected[0]):
                raise InputError(f"{where}: {name} is {shown(value)}: write {expected[1]}")
            if key in BOUNDS:
                _check(value, BOUNDS[key], name, where)
            else:
                check_value(key, value, name, where)
            if key == "layer_types" and len(value) > _LAYERS.largest:
                raise InputError(f"{where}: {name} has {len(value):,} layers: at most {_LAYERS.largest:,}")


def _mappings(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    pending = [("", config)]
    while pending:
        prefix, mapping = pending.pop()
        yield prefix, mapping
        pending += [
            (f"{prefix}{shown(key, 40)[1:-1]}.", value)
            for key, value in mapping.items()
            if isinstance(value, dict) and key not in _NOT_SIZES
        ]


def _check(value: object, bound: Bound, name: str, where: str) -> None:
    if isinstance(value, list) and bound.listed:
        if len(value) > MAX_LISTED:
            raise InputError(f"{where}: {name} lists {len(value):,} values: at most {MAX_LISTED:,}")
        each = bound if bound.smallest_listed is None else replace(bound, smallest=bound.smallest_listed)
        for position, item in enumerate(value):
            if item is not None and not isinstance(item, list):
                _check(item, each, f"{name}[{position}]", where)
        return
    number = isinstance(value, int | float) if bound.fraction else isinstance(value, int)
    if isinstance(value, bool) or not number:
        wanted = "a number" if bound.fraction else "a whole number"
        raise InputError(f"{where}: {name} is {shown(value)}: write {wanted}{_hint(value)}")
    assert isinstance(value, int | float)
    if value < bound.smallest and not (bound.fraction and value > 0):
        wanted = "a number above 0" if bound.fraction else f"a number of at least {bound.smallest}"
        raise InputError(f"{where}: {name} is {shown(value)}: write {wanted}")
    if value > bound.largest:
        raise InputError(f"{where}: {name} is {shown(value)}: write at most {bound.largest:,} ({bound.why})")


def _hint(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f", {int(value)}"
    return ""
