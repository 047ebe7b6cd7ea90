"""From a saved plan to launch files that stand on their own, for any engine: nothing of ours is started with them."""

from dataclasses import replace
from pathlib import Path

from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.engines.registry import find_engine
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.prepare import draw
from gpu_plan.executor.script.read import Script


def export(job: Job, script: Script | None, *, engine: str, folder: Path) -> LaunchFiles:
    """Files, environment and command that apply the job's plan. Pure.

    Without a script, they are for one that stands at the job's path and is as the plan takes it to be.

    UsageError for an unknown engine, one that cannot run the strategy, or arguments that the script would refuse;
    NotBuiltError for an engine of a later version.
    """
    make = find_engine(engine)
    drawn = draw(job, script, folder=folder, observed=False)
    launch = make(drawn.target)
    size = drawn.target.strategy.micro_batch_size
    own: tuple[str, ...] = ()
    if script is None and drawn.target.loop != "trainer":
        own = (f"micro batch {size} and the other values that are the script's own: no script is named",)
    elif drawn.rebatches:
        own = (f"micro batch {size}: the script takes it from nowhere, set it there",)
    return replace(launch, not_applied=(*own, *drawn.refused, *drawn.not_applied))
