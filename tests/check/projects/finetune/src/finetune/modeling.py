"""The model, its vocabulary widened by the markers of a conversation."""

from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

MARKERS = ("<|user|>", "<|assistant|>", "<|end|>")


def build_model(folder: Path) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config)
    model.resize_token_embeddings(config.vocab_size + len(MARKERS), pad_to_multiple_of=64)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model
