"""Which of Liger's kernels replace what in which models: nothing here needs torch.

Read off liger-kernel 0.8.5 src/liger_kernel/transformers/monkey_patch.py, MODEL_TYPE_TO_APPLY_LIGER_FN, which
transformers integrations/liger.py (apply_liger_kernel, the Trainer's `use_liger_kernel`) calls with its defaults.
"""

from collections.abc import Mapping
from typing import Literal

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.nearest import did_you_mean
from gpu_plan.planner.plain.values import dataclass

VERSION = "0.8.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class LigerModel:
    """What `apply_liger_kernel_to_*` replaces in one model type."""

    norm_in_place: bool = True
    """Whether the norms write their input's gradient over the one that came in."""
    final_norm_in_place: bool | None = None
    """The same for the last norm, where it differs."""
    skips: tuple[str, ...] = ()
    """Names of norms that stay the model's own."""
    mlp: Literal["silu", "gelu", "silu-chunk"] | None = "silu"
    """How the gated product is computed: from two projections, or from the halves of one (`silu-chunk`)."""
    rope: bool = True
    """Whether the modeling module's `apply_rotary_pos_emb` is replaced."""
    linear_loss: bool = True
    """Whether its forward is replaced by one with the fused linear cross entropy; otherwise the cross entropy alone
    is, by one that writes the gradient over the fp32 logits."""
    experts: bool = False
    """Whether its experts run as Liger's fused experts, which are not mirrored here."""


_PLAIN = LigerModel()
_EXPERTS = LigerModel(experts=True)

LIGER_MODELS = {
    "deepseek_v2": LigerModel(rope=False, experts=True),
    "deepseek_v3": LigerModel(rope=False, experts=True),
    "gemma": LigerModel(mlp="gelu"),
    "gemma2": LigerModel(mlp="gelu", norm_in_place=False),
    "gemma3_text": LigerModel(mlp="gelu", norm_in_place=False),
    "gpt_oss": LigerModel(mlp=None, experts=True),
    "granite": LigerModel(linear_loss=False),
    "llama": _PLAIN,
    "mistral": _PLAIN,
    "mixtral": _EXPERTS,
    "olmo2": LigerModel(norm_in_place=False, final_norm_in_place=True, skips=("q_norm", "k_norm")),
    "phi3": LigerModel(mlp="silu-chunk"),
    "qwen2": _PLAIN,
    "qwen3": _PLAIN,
    "qwen3_moe": _EXPERTS,
    "smollm3": _PLAIN,
}
"""By `model_type`. Liger covers more, multimodal models among them; those are refused by name."""

# fmt: off
_NOT_MIRRORED = frozenset(
    {
        "deepseek_v4", "exaone4", "falcon_h1", "gemma3", "gemma4", "gemma4_text", "glm4", "glm4v", "glm4v_moe",
        "hunyuan_v1_dense", "hunyuan_v1_moe", "internvl", "llama4", "llama4_text", "llava", "ministral",
        "mllama", "mllama_text_model", "muse_glimmer", "nemotron", "olmo3", "paligemma", "pixtral",
        "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl", "qwen2_vl_text", "qwen3_5", "qwen3_5_moe",
        "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_moe_text",
        "smolvlm",
    }
)
# fmt: on


def check_liger(fused: tuple[str, ...], model_type: str | None, class_name: str) -> None:
    """UsageError in one line where Liger's kernels (`layers`, `loss`) do not cover a model, or are not mirrored."""
    if not fused:
        return
    asked = "--set kernels.liger" if "layers" in fused else "--fused-loss"
    known = LIGER_MODELS.get(model_type or "")
    if known is None or not class_name.endswith("ForCausalLM"):
        if model_type in _NOT_MIRRORED or known is not None:
            raise UsageError(f"{asked}: Liger's kernels for {class_name} are not in this version")
        hint = did_you_mean(model_type or "", LIGER_MODELS, limit=1)
        raise UsageError(f"{asked}: Liger {VERSION} has no kernels for {class_name} ({model_type}).{hint}")
    if fused == ("loss",) and not known.linear_loss:
        raise UsageError(f"--fused-loss: Liger {VERSION} has no fused linear cross entropy for {class_name}")
    if "layers" in fused and known.experts:
        raise UsageError(f"{asked}: Liger's fused experts are not in this version; --fused-loss alone is")


_SWITCHES = ("rope", "rms_norm", "swiglu", "geglu")
_LINEAR = "fused_linear_cross_entropy"


def trained_with(config: Mapping[str, object], model_type: str | None, class_name: str) -> tuple[str, ...]:
    """What a Trainer's `use_liger_kernel` replaces under its `liger_kernel_config`; nothing where Liger knows the type
    not, which it passes over. UsageError in one line for what fails, or is not mirrored.
    """
    known = LIGER_MODELS.get(model_type or "")
    if known is None and model_type not in _NOT_MIRRORED:
        return ()
    if known is None or known.experts:
        raise UsageError(f"use_liger_kernel: Liger's kernels for {class_name} are not in this version")
    other = next((key for key in _SWITCHES if config.get(key, True) is not True), None)
    if other is not None or config.get("cross_entropy"):
        raise UsageError(f"liger_kernel_config: {other or 'cross_entropy'} is planned as Liger has it by itself alone")
    linear = known.linear_loss and bool(config.get(_LINEAR, True))
    if linear and not class_name.endswith("ForCausalLM"):
        raise UsageError(
            f"use_liger_kernel: Liger {VERSION} puts a language model's forward in the place of {class_name}'s, which"
            f" fails: liger_kernel_config={{'{_LINEAR}': False}} keeps its own"
        )
    return ("layers", "loss") if linear or not known.linear_loss else ("layers",)
