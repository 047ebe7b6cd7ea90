"""Options of a pipeline: `--pp`, `--schedule`, `--vpp`, and what they ask of the others."""

from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.strategy.known import pipelined, traits_of

_SPLIT = "pipeline.split"


def check_pipeline(
    degree: int | None, strategy: str | None, schedule: Schedule | None, virtual: int | None, tensor: int | None
) -> None:
    """UsageError, in one line, for options of a pipeline where there is none, and for what does not go with one."""
    named = None if strategy is None else traits_of(strategy)
    piped = named is not None and bool(named.pipeline_parallel)
    if degree == 1 and piped:
        raise UsageError(f"--strategy {strategy} and --pp 1 contradict each other")
    if degree in (None, 1) and not piped:
        for name, value in (("--schedule", schedule), ("--vpp", virtual)):
            if value is not None:
                raise UsageError(f"{name} {value} is about a pipeline: add --pp")
    if (degree or 1) > 1 and (tensor or 1) > 1:
        raise NotBuiltError(f"--tp {tensor} together with --pp {degree} of training")


def piped_strategy(strategy: str | None, degree: int | None) -> str | None:
    """Under `--pp` the strategy that another comes to: `fsdp` is `fsdp_pp`. UsageError where it comes to none."""
    if strategy is None or degree in (None, 1) or traits_of(strategy).pipeline_parallel:
        return strategy
    found = next((other for other in pipelined() if other.unpiped == strategy), None)
    if found is None:
        able = ", ".join(other.unpiped or other.name for other in pipelined())
        raise UsageError(f"--pp {degree} needs --strategy {able} or none: {strategy} has no stages")
    return found.name


def check_stages(degree: int | None, strategy: str | None, cluster: Cluster) -> None:
    """UsageError where the GPUs cannot be shared out so."""
    world = cluster.world_size
    if world % (degree or 1):
        raise UsageError(f"--pp {degree} does not divide {world} GPUs")
    named = None if strategy is None else traits_of(strategy)
    if named is None or degree is None:
        return
    if named.pipeline_parallel == "some" and degree == world:
        raise UsageError(f"--pp {degree} takes all {world} GPUs, which leaves {named.title} no other pipeline: use pp")
    if named.pipeline_parallel == "all" and degree != world:
        able = " or ".join(other.name for other in pipelined() if other.pipeline_parallel == "some")
        raise UsageError(
            f"--strategy {named.name} is one pipeline over all {world} GPUs: with --pp {degree} use {able}"
        )


def pinned_pipeline(degree: int | None, strategy: str | None, cluster: Cluster) -> str | None:
    """The simplest strategy of stages, where stages are asked for and no strategy is."""
    if strategy is not None or degree in (None, 1):
        return strategy
    wanted = "all" if degree == cluster.world_size else "some"
    return next(traits.name for traits in pipelined() if traits.pipeline_parallel == wanted)


def with_even_stages(settings: tuple[tuple[str, str], ...], degree: int | None) -> tuple[tuple[str, str], ...]:
    """Of a pinned pipeline: as many layers for each stage, unless something else is set."""
    if degree in (None, 1) or _SPLIT in dict(settings):
        return settings
    return tuple(sorted((*settings, (_SPLIT, "even"))))
