"""What accelerate leaves to the script after `load_state`, done for every script."""

import functools
import re
from pathlib import Path
from typing import Any

from gpu_plan.executor.checkpoints.manifest import Manifest
from gpu_plan.executor.runner.parallel.degrees import read_degrees

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
    now = schedule_pace(accelerator)
    if manifest.pace and manifest.pace != now:
        for scheduler in accelerator._schedulers:
            rescale_schedule(scheduler, manifest.pace, now)


def schedule_pace(accelerator: Any) -> int:
    """How often a schedule advances for one optimizer step: once for each rank, or each group of tensor parallel ones
    (gpu_plan.executor.runner.parallel.samples: count_groups)."""
    degrees = read_degrees()
    if degrees is not None and degrees.tp_size > 1:
        return degrees.data_parallel
    return int(accelerator.num_processes)


def rescale_schedule(scheduler: Any, before: int, now: int) -> None:
    """A schedule that accelerate advances once for each rank stands, for another number of them, somewhere else.

    accelerate/scheduler.py: AcceleratedScheduler.step. The global batch is taken to be the same, as the planner keeps
    it. Schedules that are functions of the step alone (LambdaLR, so all of transformers' but one) are moved; others
    keep their state.
    """
    if not getattr(scheduler, "step_with_optimizer", False) or getattr(scheduler, "split_batches", True):
        return
    inner = scheduler.scheduler
    if hasattr(inner, "lr_lambdas"):
        inner.last_epoch = inner.last_epoch * now // before
        inner._step_count = inner.last_epoch + 1


def fills_optimizer(original: Any) -> Any:
    """Accelerate's `load_fsdp_optimizer`, which restores nothing of FSDP1's shards where the optimizer is new.

    accelerate 1.15, utils/fsdp_utils.py: what is read is what `FSDP.optim_state_dict` of the optimizer names, and
    before its first step that is nothing; training then goes on with Adam's moments at zero, and nobody is told. A step
    of zero gradients and zero learning rate, as torch takes for FSDP2 (torch/distributed/checkpoint/state_dict.py:
    _init_optim_state), makes the state that the shards are read into.
    """

    @functools.wraps(original)
    def load_fsdp_optimizer(fsdp_plugin: Any, accelerator: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        inner = getattr(optimizer, "optimizer", optimizer)
        if fsdp_plugin.fsdp_version == 1 and fsdp_plugin.state_dict_type.name == "SHARDED_STATE_DICT":
            _make_state(inner)
        return original(fsdp_plugin, accelerator, optimizer, *args, **kwargs)

    return load_fsdp_optimizer


def _make_state(optimizer: Any) -> None:
    parameters = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
    if optimizer.state or any(each.grad is not None for each in parameters):
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for each in parameters:
        each.grad = each.new_zeros(each.shape)
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * 0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
