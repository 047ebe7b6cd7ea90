"""A model on the hub by the name of the folder that holds its copy, where that name is the hub's own."""

from collections.abc import Mapping

_OWNERS: Mapping[str, str] = {
    "Meta-Llama-": "meta-llama", "Llama-": "meta-llama", "CodeLlama-": "codellama", "TinyLlama": "TinyLlama",
    "Qwen": "Qwen", "gemma-": "google", "codegemma-": "google", "Phi-": "microsoft", "phi-": "microsoft",
    "Mistral-": "mistralai", "Mixtral-": "mistralai", "deepseek-": "deepseek-ai", "DeepSeek-": "deepseek-ai",
    "gpt-oss-": "openai", "OLMo": "allenai", "SmolLM": "HuggingFaceTB", "falcon-": "tiiuae", "pythia-": "EleutherAI",
}  # fmt: skip
"""Who publishes models whose names begin so, by the commands that torchtune's recipes and torchtitan's README give for
their downloads."""


def hub_id(path: str) -> str | None:
    """`/tmp/Qwen3-4B/` is Qwen/Qwen3-4B; None for a folder named otherwise."""
    name = path.rstrip("/").rpartition("/")[2]
    owner = next((owner for sign, owner in _OWNERS.items() if name.startswith(sign)), None)
    return None if owner is None else f"{owner}/{name}"
