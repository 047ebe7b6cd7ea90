"""Finetuning runs of litgpt: its models and adapters."""
