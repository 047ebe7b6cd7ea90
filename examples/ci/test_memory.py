"""Tests that hold what training takes of a GPU. They need none: `pytest examples/ci/test_memory.py`."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

GIB = 2**30
CONFIG = LlamaConfig(
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=128256,
    tie_word_embeddings=True,
    use_cache=False,
)


def fine_tune(model, steps=2, batch_size=2, context=1024):
    """The code under test: usually imported from the project."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(steps):
        tokens = torch.randint(0, CONFIG.vocab_size, (batch_size, context), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.limit_gpu_memory("38 GiB", gpu="A100-40GB", of="device")
def test_a_step_fits_the_small_a100():
    fine_tune(LlamaForCausalLM(CONFIG))


def test_checkpointing_pays_off(plan_memory):
    with plan_memory(gpu="A100-40GB") as plain:
        fine_tune(LlamaForCausalLM(CONFIG))
    with plan_memory(gpu="A100-40GB") as checkpointed:
        model = LlamaForCausalLM(CONFIG)
        model.gradient_checkpointing_enable()
        fine_tune(model)
    checkpointed.limit("30 GiB")
    saved = plain.at_peak["activations"] - checkpointed.at_peak["activations"]
    assert saved > 1 * GIB
