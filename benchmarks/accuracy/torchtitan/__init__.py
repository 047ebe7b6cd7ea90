"""Runs of torchtitan under FSDP2: its Llama, its checkpointing, torchao's float8 layers."""
