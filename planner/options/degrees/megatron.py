"""Options of a library's own model, which is shared out in every degree at once."""

from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.pipeline.schedules import Schedule
from gpu_plan.planner.strategy.known import traits_of

_KNOWN = (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)


def runs_own_model(strategy: str | None) -> bool:
    """Whether a strategy's engine runs its own model in place of the user's class."""
    return strategy is not None and bool(traits_of(strategy).own_model)


def check_schedule(schedule: Schedule | None, virtual: int | None, pipeline: int | None) -> None:
    """UsageError, in one line, for a schedule that Megatron-core does not have, and for stages without a pipeline."""
    if schedule is not None and schedule not in _KNOWN:
        raise UsageError(f"--schedule {schedule}: Megatron-core has {_KNOWN[0]}, and {_KNOWN[1]} with --vpp")
    if pipeline in (None, 1) and (virtual or 1) > 1:
        raise UsageError(f"--vpp {virtual} is about a pipeline: add --pp")
    if schedule is Schedule.ONE_F_ONE_B and (virtual or 1) > 1:
        raise UsageError(f"--vpp {virtual} is the interleaved schedule: drop --schedule {schedule}")


def check_product(tensor: int | None, pipeline: int | None, context: int | None, cluster: Cluster) -> None:
    """UsageError where degrees that were given do not divide the GPUs."""
    given = {"--tp": tensor or 1, "--pp": pipeline or 1, "--cp": context or 1}
    product = 1
    for degree in given.values():
        product *= degree
    if cluster.world_size % product:
        words = " x ".join(f"{name} {degree}" for name, degree in given.items() if degree > 1)
        raise UsageError(f"{words} does not divide {cluster.world_size} GPUs")
