"""Trains a model of Llama-2-7B's size from a config, with Accelerate: nothing is downloaded."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForCausalLM, LlamaConfig, get_cosine_schedule_with_warmup


def main() -> None:
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=4096,
    )
    model = AutoModelForCausalLM.from_config(config)
    model.gradient_checkpointing_enable()
    tokens = torch.randint(0, config.vocab_size, (16, 1024))
    loader = DataLoader(TensorDataset(tokens), batch_size=2, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimizer, 2, 8)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    model.train()
    for step, (ids,) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = model(input_ids=ids, labels=ids).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
