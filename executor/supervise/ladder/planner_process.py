"""Asks the planner for one pinned configuration, in a process of its own: tracing would bring torch into ours (I/O)."""

import os
import subprocess
from dataclasses import dataclass

from gpu_plan.executor.job import Job
from gpu_plan.planner.errors import ExitCode, InputError, PlanError
from gpu_plan.planner.options.given.document import asked_to_json
from gpu_plan.planner.options.given.named import Named, named
from gpu_plan.planner.own_python import own_command, own_environment
from gpu_plan.planner.plan.document import from_json
from gpu_plan.planner.plan.figures import StrategyChoice
from gpu_plan.planner.plan.saved import SavedPlan, saved_plan

_SECONDS = 300
"""A plan takes seconds; one that does not come must not keep a job that could go on with the next rung."""
_REFUSED = int(ExitCode.USAGE)
_OPTIONS = (
    "seq_len", "precision", "optimizer", "attention", "stack", "dp_replicate", "peft", "lora_rank", "lora_targets",
)  # fmt: skip
"""Of the workload, those that a plan is asked with again."""


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
    try:
        asked = asked_to_json(asked_again(job, strategy), job.arguments if job.saved.model.id.endswith(".py") else ())
    except InputError as problem:
        return Evaluated(saved=None, reason=str(problem), impossible=True)
    try:
        done = subprocess.run(
            own_command("gpu_plan.commands.asked"),
            input=asked.encode(),
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


def asked_again(job: Job, strategy: StrategyChoice) -> Named:
    """The job pinned to `strategy`. InputError where its saved plan holds what no job can be asked with."""
    saved, workload = job.saved, job.saved.workload
    folder = job.working_directory / saved.model.id
    values = {name.replace("_", "-"): workload.get(name) for name in _OPTIONS}
    if not saved.model.has_sequence:
        del values["seq-len"]
    return named(
        {
            **values,
            "model": str(folder) if folder.exists() else saved.model.id,
            "gpus": str(saved.cluster["spec"]),
            "pin": True,
            "strategy": strategy.name,
            "tp": strategy.tensor_parallel if strategy.tensor_parallel > 1 else None,
            "cp": strategy.context_parallel if strategy.context_parallel > 1 else None,
            "ep": strategy.expert_parallel if strategy.expert_parallel > 1 else None,
            "pp": strategy.pipeline_parallel if strategy.pipeline_parallel > 1 else None,
            "schedule": strategy.schedule or None,
            "vpp": strategy.virtual_stages if strategy.virtual_stages > 1 else None,
            "offload": strategy.offload,
            "micro-batch": strategy.micro_batch_size,
            "grad-accum": strategy.gradient_accumulation_steps,
            "checkpointing": strategy.checkpointing,
            "fused-loss": True if workload.get("fused_loss") else None,
            "set": workload.get("settings"),
        }
    )
