"""Options and settings that say something about what is not there: one line each."""

from collections.abc import Sequence

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.strategy.known import (
    meant_by,
    replicating,
    traits_of,
)
from gpu_plan.planner.strategy.traits import Offload
from gpu_plan.planner.workload.training import (
    Checkpointing,
    Stack,
)


def check_strategy_settings(strategy: str | None, settings: Sequence[tuple[str, str]]) -> None:
    """UsageError for a setting that says nothing about the strategy that is planned."""
    for key, _ in settings:
        meant = meant_by(key)
        if meant and strategy is not None and strategy not in meant:
            named = " and ".join(filter(None, (", ".join(meant[:-1]), meant[-1])))
            raise UsageError(f"--set {key} is about --strategy {named}, not {strategy}")


def check_pinned_memory(offload: Offload | None, settings: Sequence[tuple[str, str]]) -> None:
    """UsageError for how offloaded state is held where nothing is offloaded."""
    if offload is Offload.NONE and "zero.pin_memory" in dict(settings):
        raise UsageError("--set zero.pin_memory is about offloaded state: add --offload optimizer, all or nvme")


_SWAPPING = (
    "zero.nvme_path", "zero.offload_param", "zero.max_in_cpu", "zero.param_buffer_count", "zero.param_buffer_size",
    "zero.optimizer_buffer_count",
)  # fmt: skip


_OF_WEIGHTS = ("zero.max_in_cpu", "zero.param_buffer_count", "zero.param_buffer_size")
"""Of those, what is about the weights alone."""


def check_swapping(given: Given) -> None:
    """UsageError for a setting of swap files where there are none."""
    settings = dict(given.settings)
    key = next((key for key in settings if key in _SWAPPING), None)
    if key is not None and given.offload is not Offload.NVME:
        raise UsageError(f"--set {key} needs --offload nvme")
    place = settings.get("zero.offload_param", "nvme")
    key = next((key for key in settings if key in _OF_WEIGHTS), None)
    if key is not None and place != "nvme":
        raise UsageError(f"--set {key} is about weights in files, and zero.offload_param={place} keeps them elsewhere")


def check_every(checkpointing: Checkpointing | None, settings: Sequence[tuple[str, str]], stack: Stack | None) -> None:
    if checkpointing is Checkpointing.NONE and "checkpoint.every" in dict(settings):
        raise UsageError("--set checkpoint.every needs --checkpointing full or selective: nothing is checkpointed")
    given = dict(settings)
    if given.get("checkpoint.reentrant") == "true" and checkpointing not in (None, Checkpointing.FULL):
        raise UsageError(
            f"--set checkpoint.reentrant=true needs --checkpointing full, and --checkpointing {checkpointing} is given"
        )
    if given.get("checkpoint.offload") != "true":
        return
    if checkpointing not in (None, Checkpointing.FULL) or given.get("checkpoint.every", "1") != "1":
        raise UsageError(
            "--set checkpoint.offload needs --checkpointing full of every layer: Accelerate wraps them all"
        )
    if stack is not None and stack.traits.loop != "accelerate":
        raise UsageError(
            f"--set checkpoint.offload is Accelerate's own checkpointing, which --stack {stack} does not use"
        )


def check_replicas(given: Given) -> None:
    """UsageError for a number of replicas under a strategy that has none; 1 is what they have anyway."""
    if given.strategy is None:
        return
    traits = traits_of(given.strategy)
    if traits.replicates and given.dp_replicate == 1:
        raise UsageError(
            f"--dp-replicate 1 with --strategy {traits.name} replicates nothing: use --strategy {traits.unreplicated}"
        )
    if not traits.replicates and given.dp_replicate not in (None, 1):
        able = " or ".join(other.name for other in replicating())
        raise UsageError(f"--dp-replicate {given.dp_replicate} needs --strategy {able}: {traits.name} has no replicas")
