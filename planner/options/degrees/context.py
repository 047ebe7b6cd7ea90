"""Options of samples whose tokens several ranks share: `--cp`, and what it asks of the others."""

from collections.abc import Mapping

from gpu_plan.planner.context.rules import ROTATION, why_uncut, why_whole
from gpu_plan.planner.errors import NotBuiltError, UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.strategy.known import context_parallel, traits_of
from gpu_plan.planner.strategy.traits import Traits
from gpu_plan.planner.workload.training import Workload


def check_context(degree: int | None, strategy: str | None, beside: Mapping[str, int | None]) -> None:
    """UsageError, in one line, for a strategy whose ranks compute whole samples; NotBuiltError for other degrees."""
    if degree in (None, 1):
        return
    other = next(((name, value) for name, value in beside.items() if (value or 1) > 1), None)
    if other is not None:
        raise NotBuiltError(f"{other[0]} {other[1]} together with --cp {degree}")
    if strategy is not None and not traits_of(strategy).context_parallel:
        able = ", ".join(traits.name for traits in context_parallel())
        raise UsageError(f"--cp {degree} needs --strategy {able} or none: ranks of {strategy} compute whole samples")


def check_ranks(degree: int | None, replicas: int | None, cluster: Cluster) -> None:
    """UsageError where the devices cannot be shared out so."""
    if degree in (None, 1):
        return
    if cluster.gpu.is_cpu:
        raise UsageError(f"--cp {degree}: neither torch's ring nor DeepSpeed's Ulysses runs on a CPU: plan for GPUs")
    each = cluster.world_size // (replicas or 1)
    if each % (degree or 1):
        among = f" of each of {replicas} replicas" if (replicas or 1) > 1 else ""
        raise UsageError(f"--cp {degree} does not divide {each} GPUs{among}")


def pinned_context(degree: int | None, strategy: str | None) -> str | None:
    """The simplest strategy under which tokens are shared out, where that is asked for and no strategy is."""
    if strategy is not None or degree in (None, 1):
        return strategy
    return context_parallel()[0].name


def check_split(workload: Workload) -> None:
    """UsageError where no strategy that may be planned could share out this job's samples."""
    degree = workload.context_parallel or 1
    if degree == 1:
        if ROTATION in dict(workload.settings) and workload.context_parallel == 1:
            raise UsageError(f"--set {ROTATION} is about samples that ranks share: add --cp")
        return
    able = context_parallel() if workload.strategy is None else (traits_of(workload.strategy),)
    problems = [_problem(workload, degree, traits) for traits in able]
    if all(problems):
        raise UsageError(f"--cp {degree}: {problems[0]}")


def _problem(workload: Workload, degree: int, traits: Traits) -> str | None:
    return why_whole(workload, traits.context_parallel) or why_uncut(workload.seq_len, degree, traits.context_parallel)
