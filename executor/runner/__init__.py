"""Runs a training script in one rank and records what happens there, without a line in the script.

`python -m gpu_plan.executor.runner SCRIPT ARGS...` is what the launcher starts on every rank. It imports the standard
library only; what it hooks (torch, accelerate, deepspeed, transformers, lightning) it meets when the script imports it.
"""
