"""What accelerate leaves to the script after `load_state`, done for every script."""

import re
from pathlib import Path
from typing import Any

from executor.checkpoints.manifest import Manifest

_NUMBERED = re.compile(r"checkpoint_(\d+)")


def number_next(accelerator: Any, folder: Path) -> None:
    """Goes on numbering after the loaded `checkpoint_N`: accelerate would begin at 0 and refuse to save there."""
    config, match = accelerator.project_configuration, _NUMBERED.fullmatch(folder.name)
    if config.automatic_checkpoint_naming and match is not None:
        config.iteration = max(config.iteration, int(match[1]) + 1)


def after_load(accelerator: Any, manifest: Manifest) -> None:
    """Adjusts what depends on the run that saved: the place within an accumulation, the unit of a schedule."""
    saved = manifest.gradient_accumulation_steps
    if saved is not None and accelerator.step % saved == 0:
        # Between two optimizer steps. Accelerate counts micro batches on, which is wrong under another accumulation.
        accelerator.step = 0
    if manifest.world_size and manifest.world_size != accelerator.num_processes:
        for scheduler in accelerator._schedulers:
            rescale_schedule(scheduler, manifest.world_size, accelerator.num_processes)


def rescale_schedule(scheduler: Any, before: int, now: int) -> None:
    """A schedule that accelerate advances once for each rank stands, for another number of ranks, somewhere else.

    accelerate/scheduler.py: AcceleratedScheduler.step. Schedules that are functions of the step alone (LambdaLR, so
    all of transformers' but one) are moved; others keep their state.
    """
    if not getattr(scheduler, "step_with_optimizer", False) or getattr(scheduler, "split_batches", True):
        return
    inner = scheduler.scheduler
    if hasattr(inner, "lr_lambdas"):
        inner.last_epoch = inner.last_epoch * now // before
        inner._step_count = inner.last_epoch + 1
