"""Which classes of transformers are cut into stages."""

CUT = frozenset(
    {
        "arcee", "cohere2", "deepseek_v3", "gemma2", "gemma3_text", "glm4_moe", "gpt2", "gpt_oss", "granite", "jamba",
        "llama", "mistral", "mixtral", "olmo2", "olmo3", "olmoe", "phi3", "qwen2", "qwen2_moe",
        "qwen3", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3", "stablelm", "starcoder2",
    }
)  # fmt: skip
"""Model types whose stages, one after the other, give the whole model's logits, by test."""
