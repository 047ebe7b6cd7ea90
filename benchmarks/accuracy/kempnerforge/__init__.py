"""Runs of KempnerForge under FSDP2, with tensor parallel or without: its own layers, its loss, bf16 throughout."""
