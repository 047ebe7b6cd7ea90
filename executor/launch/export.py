"""From a saved plan to launch files that stand on their own, for any engine: nothing of ours is started with them."""

from dataclasses import replace
from pathlib import Path

from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.engines.portable import start_files
from gpu_plan.executor.launch.engines.registry import OWN_LOOPS, find_engine
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.prepare import draw
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.script.read import Script
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.strategy.known import traits_of


def export(job: Job, script: Script | None, *, engine: str, folder: Path) -> LaunchFiles:
    """Files, environment and command that apply the job's plan. Pure.

    Without a script, they are for one that stands at the job's path and is as the plan takes it to be.

    UsageError for an unknown engine, one that cannot run the strategy, or arguments that the script would refuse.
    """
    make = find_engine(engine)
    own_model = traits_of(job.saved.plan.strategy.name).own_model
    if own_model and engine not in OWN_LOOPS:
        raise UsageError(
            f"--to {engine} runs a script's own model; this plan is of {own_model}'s: use {', '.join(OWN_LOOPS)}"
        )
    drawn = draw(job, script, folder=folder, observed=False)
    launch = make(drawn.target)
    size = drawn.target.strategy.micro_batch_size
    own: tuple[str, ...] = ()
    if own_model:
        return launch
    if script is None and drawn.target.loop != "trainer":
        own = (f"micro batch {size} and the other values that are the script's own: no script is named",)
    elif drawn.rebatches:
        own = (f"micro batch {size}: the script has no option for it, set it there",)
    if drawn.target.data_loader and drawn.target.loop == "accelerate":
        fields = ", ".join(f"{name}={value}" for name, value in drawn.target.data_loader.items())
        own = (*own, f"data.*: give the script's Accelerator a DataLoaderConfiguration({fields})")
    if script is None and _clips_by_file(drawn.target) and drawn.target.max_grad_norm is None:
        said = (
            "DeepSpeed clips by its own file alone, which says 0 (--set clip.max_norm=1.0 when planning, or --script)"
        )
        own = (*own, f"clipping of a script that is not named: {said}")
    files = {**launch.files, **(start_files(drawn.target) if drawn.target.needs_start_files else {})}
    return replace(launch, files=files, not_applied=(*own, *drawn.refused, *drawn.not_applied))


def _clips_by_file(target: Target) -> bool:
    return target.uses_deepspeed and not target.in_trainer
