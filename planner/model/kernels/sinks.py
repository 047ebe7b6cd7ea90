"""Classes with attention sinks: torch's fused attention has none, and their own kernel runs on Hopper alone.

transformers' `_compatible_flash_implementations` of each names `kernels-community/vllm-flash-attn3`, whose mha_fwd
(huggingface/kernels-community vllm-flash-attn3/flash-attn/flash_api_stable.cpp) takes sinks on compute capability 9.0.
"""

_HOPPER = (9, 0)
_TYPES = frozenset({"flint", "gpt_oss", "granite_swa", "granitemoe_swa", "openai_privacy_filter"})
"""Of models, as their configs name them."""


def has_kernel(model_type: str | None, capability: tuple[int, int] | None) -> bool:
    """Whether flash attention with sinks is there for a class, where sdpa is not."""
    return model_type in _TYPES and capability == _HOPPER


def refusal(model_type: str | None, capability: tuple[int, int] | None) -> str | None:
    """Why flash attention cannot run, in one line; None where nothing is in the way."""
    if model_type not in _TYPES or capability == _HOPPER:
        return None
    return f"--attention flash: {model_type} has attention sinks, whose kernel runs on Hopper alone"
