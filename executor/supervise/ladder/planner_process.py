"""Asks the planner for one pinned configuration, in a process of its own: tracing would bring torch into ours (I/O)."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_plan.executor.job import Job
from gpu_plan.planner.errors import ExitCode, PlanError
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.planner.plan.document import from_json
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.plan.saved import SavedPlan, saved_plan

_SECONDS = 300
_REFUSED = int(ExitCode.USAGE)
_OPTIONS: Mapping[str, str] = {
    "seq_len": "--seq-len",
    "precision": "--precision",
    "optimizer": "--optimizer",
    "attention": "--attention",
    "stack": "--stack",
    "dp_replicate": "--dp-replicate",
    "peft": "--peft",
    "lora_rank": "--lora-rank",
    "lora_targets": "--lora-targets",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What the planner says of a strategy."""

    saved: SavedPlan | None
    """The plan; None where the planner refused it or could not be asked."""
    reason: str = ""
    """Why not."""
    asked: bool = True
    """False where the planner gave no opinion: the model cannot be reached, or the planner did not end."""
    impossible: bool = False
    """Whether the model or the engine does not know such a configuration at all, whatever the memory."""


def evaluate(job: Job, strategy: StrategyChoice) -> Evaluated:
    """The same job under another strategy, planned anew in its folder. Never raises for what the planner says."""
    command = (*own_command("gpu_plan"), *plan_words(job, strategy))
    try:
        done = subprocess.run(
            command,
            cwd=job.working_directory,
            env=own_environment(os.environ, directory=job.working_directory),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Evaluated(saved=None, reason=f"the planner gave no answer: {error}", asked=False)
    try:
        document = from_json(done.stdout, "the planner's answer")
    except PlanError as error:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1].removeprefix("plan: error: ") if lines else str(error)
        refused = done.returncode == _REFUSED
        return Evaluated(saved=None, reason=reason, asked=refused, impossible=refused)
    if document.best is None:
        reasons = [candidate.reason for candidate in document.rejected if candidate.reason]
        return Evaluated(saved=None, reason=reasons[0] if reasons else "it does not fit")
    return Evaluated(saved=saved_plan(document))


def plan_words(job: Job, strategy: StrategyChoice) -> tuple[str, ...]:
    """The command line that pins `strategy` for the job; a model that is a script is given the job's arguments."""
    saved = job.saved
    folder = job.working_directory / saved.model.id
    words = [str(folder) if folder.exists() else saved.model.id, "--gpus", str(saved.cluster["spec"])]
    words += ["--pin", "--json", "--strategy", strategy.name, "--offload", strategy.offload]
    words += ["--micro-batch", str(strategy.micro_batch_size)]
    words += ["--grad-accum", str(strategy.gradient_accumulation_steps)]
    words += ["--checkpointing", strategy.checkpointing]
    workload = saved.workload
    for key, option in _OPTIONS.items():
        value = workload.get(key)
        if value is not None and not (key == "seq_len" and not saved.model.has_sequence):
            words += [option, ",".join(value) if isinstance(value, list) else str(value)]
    if workload.get("fused_loss"):
        words.append("--fused-loss")
    settings = workload.get("settings")
    for key, value in settings.items() if isinstance(settings, Mapping) else ():
        words += ["--set", f"{key}={value}"]
    if saved.model.id.endswith(".py") and job.arguments:
        words += ["--", *job.arguments]
    return tuple(words)
