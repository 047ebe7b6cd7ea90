"""Options of a pipeline: `--pp`, `--schedule`, `--vpp`, and what they ask of the others."""

from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.strategy.known import pipelined, traits_of

_SPLIT = "pipeline.split"


def check_pipeline(
    degree: int | None, strategy: str | None, schedule: Schedule | None, virtual: int | None, experts: int | None
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
    if (degree or 1) > 1 and (experts or 1) > 1:
        raise NotBuiltError(f"--ep {experts} together with --pp {degree} of training")


def piped_strategy(strategy: str | None, degree: int | None) -> str | None:
    """Under `--pp` the strategy that another comes to: `fsdp` is `fsdp_pp`. UsageError where it comes to none."""
    if strategy is None or degree in (None, 1) or traits_of(strategy).pipeline_parallel:
        return strategy
    found = next((other for other in pipelined() if other.unpiped == strategy), None)
    if found is None:
        able = ", ".join(other.unpiped or other.name for other in pipelined())
        raise UsageError(f"--pp {degree} needs --strategy {able} or none: {strategy} has no stages")
    return found.name


def check_stages(degree: int | None, strategy: str | None, cluster: Cluster, tensor: int | None = None) -> None:
    """UsageError where the GPUs cannot be shared out so; `tensor` of them compute each stage together."""
    world = cluster.world_size
    if world % (degree or 1):
        raise UsageError(f"--pp {degree} does not divide {world} GPUs")
    if (tensor or 1) > 1 and (degree or 1) > 1:
        if world % ((tensor or 1) * (degree or 1)):
            raise UsageError(f"--tp {tensor} x --pp {degree} does not divide {world} GPUs: their product has to")
        world //= tensor or 1
    named = None if strategy is None else traits_of(strategy)
    if named is not None and named.pipeline_parallel and named.tensor_parallel and (tensor or 1) == 1:
        raise UsageError(f"--strategy {named.name} has groups of ranks compute each stage: add --tp")
    if named is None or degree is None:
        return
    alike = [other for other in pipelined() if bool(other.tensor_parallel) == bool(named.tensor_parallel)]
    if named.pipeline_parallel == "some" and degree == world:
        alone = next(other.name for other in alike if other.pipeline_parallel == "all")
        raise UsageError(
            f"--pp {degree} takes all {cluster.world_size} GPUs, which leaves {named.title} no other pipeline:"
            f" use {alone}"
        )
    if named.pipeline_parallel == "all" and degree != world:
        able = " or ".join(other.name for other in alike if other.pipeline_parallel == "some")
        raise UsageError(
            f"--strategy {named.name} is one pipeline over all {cluster.world_size} GPUs: with --pp {degree} use {able}"
        )


def pinned_pipeline(
    degree: int | None, strategy: str | None, cluster: Cluster, tensor: int | None = None
) -> str | None:
    """The simplest strategy of stages, where stages are asked for and no strategy is."""
    if strategy is not None or degree in (None, 1):
        return strategy
    together = tensor or 1
    wanted = "all" if (degree or 1) * together == cluster.world_size else "some"
    able = [traits for traits in pipelined() if bool(traits.tensor_parallel) == (together > 1)]
    return next(traits.name for traits in able if traits.pipeline_parallel == wanted)


def with_even_stages(settings: tuple[tuple[str, str], ...], degree: int | None) -> tuple[tuple[str, str], ...]:
    """Of a pinned pipeline: as many layers for each stage, unless something else is set."""
    if degree in (None, 1) or _SPLIT in dict(settings):
        return settings
    return tuple(sorted((*settings, (_SPLIT, "even"))))
