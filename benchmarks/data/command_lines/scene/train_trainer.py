"""The same with transformers' Trainer."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, use_cache=False
)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 512, (64, 32))]
arguments = TrainingArguments("out", per_device_train_batch_size=4, max_steps=2, report_to=[], save_strategy="no")
Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows).train()
