"""What the Trainer of transformers asks of its process and of a checkpoint, where the planned devices are on meta."""

import functools
from pathlib import Path
from typing import Any

import torch

SPREAD_OPTIMIZER = "spread_optimizer_0"
"""Folder of a checkpoint in which ranks that shared a model left their optimizer's parts."""


def trainer_on_meta(module: Any) -> None:
    """transformers training_args.py: `_setup_devices` gives the host for `--use_cpu`, where planned CPUs have meta."""
    original = module.TrainingArguments._setup_devices

    def device(arguments: Any) -> torch.device:
        found: torch.device = original.__get__(arguments, type(arguments))
        return torch.device("meta") if found.type == "cpu" else found

    module.TrainingArguments._setup_devices = property(device)


def parts_are_the_ranks(module: Any) -> None:
    """Such parts are read inside each rank alone: Trainer._load_optimizer_and_scheduler finds no `optimizer.pt`."""
    original = module.Trainer._load_optimizer_and_scheduler

    @functools.wraps(original)
    def load(trainer: Any, checkpoint: Any) -> Any:
        if checkpoint is not None and Path(checkpoint, SPREAD_OPTIMIZER).exists():
            return None
        return original(trainer, checkpoint)

    module.Trainer._load_optimizer_and_scheduler = load
