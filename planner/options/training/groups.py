"""Under degrees a strategy is the one that it comes to in groups of ranks: `fsdp` is `fsdp_tp`."""

from dataclasses import replace

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.options.degrees.pipeline import (
    check_pipeline,
    piped_strategy,
)
from gpu_plan.planner.options.training.given import Given
from gpu_plan.planner.strategy.known import (
    expert_parallel,
    tensor_parallel,
    traits_of,
)


def with_degrees(given: Given) -> Given:
    """Under `--tp` a strategy is the one that it comes to in groups of ranks: `fsdp` is `fsdp_tp`. UsageError where it
    comes to none, and the other way round where a strategy of groups is given groups of one."""
    if given.strategy is None or given.tensor_parallel is None:
        return given
    traits, degree = traits_of(given.strategy), given.tensor_parallel
    if degree == 1 and traits.tensor_parallel:
        raise UsageError(f"--strategy {traits.name} and --tp 1 contradict each other")
    if degree == 1 or traits.tensor_parallel:
        return given
    grouped = next((other for other in tensor_parallel() if other.untensored == traits.name), None)
    if grouped is None:
        able = ", ".join(other.name for other in tensor_parallel())
        raise UsageError(f"--tp {degree} needs --strategy fsdp, {able} or none: {traits.name} splits no copy")
    return replace(given, strategy=grouped.name)


def with_experts(given: Given) -> Given:
    """The same for `--ep`: `fsdp` is `fsdp_ep`."""
    experts, together = given.expert_parallel or 1, given.tensor_parallel or 1
    if experts % together and experts > 1:
        raise UsageError(
            f"--ep {experts} is no multiple of --tp {together}: ranks that share a copy hold experts together"
        )
    if given.strategy is None:
        return given
    traits = traits_of(given.strategy)
    if given.expert_parallel == 1 and traits.expert_parallel == "must":
        raise UsageError(f"--strategy {traits.name} and --ep 1 contradict each other")
    if experts == 1 or traits.expert_parallel:
        return given
    grouped = next((other for other in expert_parallel() if other.untensored == traits.name), None)
    if grouped is None:
        able = ", ".join(other.name for other in expert_parallel())
        raise UsageError(f"--ep {experts} needs --strategy fsdp, hsdp, {able} or none: {traits.name} keeps all experts")
    return replace(given, strategy=grouped.name)


def with_stages(given: Given) -> Given:
    """Under `--pp` a strategy is the one that it comes to in stages."""
    degree, experts = given.pipeline_parallel, given.expert_parallel
    check_pipeline(degree, given.strategy, given.schedule, given.virtual_stages, experts)
    return replace(given, strategy=piped_strategy(given.strategy, degree))
