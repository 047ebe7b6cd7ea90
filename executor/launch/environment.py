"""What a plan sets in the environment of every rank, whatever engine starts them. Pure."""

import json
from collections.abc import Mapping
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.runner.parallel.degrees import VARIABLE
from gpu_plan.executor.runner.parallel.piped.layout import VARIABLE as STAGES
from gpu_plan.planner.memory.allocator.words import allocator_variable
from gpu_plan.planner.strategy.known import all_traits

_EXACT_RESIDENT_MEMORY: Mapping[str, str] = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_ARENA_MAX": "1",
}
"""glibc then gives freed tensors back at once: what a CPU rank holds becomes what its tensors take."""


def exact_resident_memory() -> dict[str, str]:
    """glibc's settings under which a CPU rank's resident memory is what its tensors take."""
    return dict(_EXACT_RESIDENT_MEMORY)


def batch_environment(target: Target) -> dict[str, str]:
    """The planned batch, for scripts that read it; and for Accelerate, what it reads itself."""
    strategy = target.strategy
    found = {
        names.MICRO_BATCH_SIZE: str(target.loader_batch),
        names.GRADIENT_ACCUMULATION_STEPS: str(strategy.loop_steps),
    }
    if target.saved.model.has_sequence:
        found[names.SEQUENCE_LENGTH] = str(target.saved.workload["seq_len"])
    if not target.in_trainer and not target.batch_is_users:
        # Beats what the script's Accelerator is given; the Trainer accumulates itself and wants 1 there.
        found["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = str(strategy.loop_steps)
    if target.degrees is not None:
        found[VARIABLE] = json.dumps(target.degrees.fields())
    if target.layout is not None:
        found[STAGES] = json.dumps(target.layout.fields())
    return found


def device_environment(target: Target) -> dict[str, str]:
    """Which devices the ranks use, and how memory is given out there."""
    if not target.on_cpu:
        settings = target.saved.workload.get("settings")
        given = {key: str(value) for key, value in settings.items()} if isinstance(settings, Mapping) else {}
        variable = allocator_variable({**target.chosen, **given})
        return {"PYTORCH_ALLOC_CONF": variable} if variable else {}
    found = {"CUDA_VISIBLE_DEVICES": "", **(_EXACT_RESIDENT_MEMORY if target.observed else {})}
    if target.emulates_float8:
        found[names.CPU_FLOAT8] = "1"
    if target.needs_cpu_ranks:
        # With ACCELERATE_USE_CPU, FSDP2 would silently become DDP, and FSDP1 would find no device.
        found |= {names.CPU_RANKS: "1", "ACCELERATE_TORCH_DEVICE": "cpu"}
    else:
        # The launcher's `--cpu` would start a single process whatever is asked.
        found["ACCELERATE_USE_CPU"] = "true"
    return found


def strategy_names() -> dict[str, str]:
    """What tells ranks how to call what they find around their models."""
    called = {word: traits.name for traits in all_traits() for word in traits.seen_as}
    return {names.STRATEGIES: json.dumps(called)}


def run_environment(
    *, run_id: str, folder: Path, attempt: int, resume_from: Path | None, options: Mapping[str, object]
) -> dict[str, str]:
    """What ties a rank to its run: the folder for its record, and what its runner is to do."""
    found = {
        names.RUN_ID: run_id,
        names.RUN_FOLDER: str(folder),
        names.ATTEMPT: str(attempt),
        names.OPTIONS: json.dumps(options, sort_keys=True),
    }
    if resume_from is not None:
        found[names.RESUME_FROM] = str(resume_from)
    return found
