"""A function run under a plan through Accelerate's own launchers for notebooks, each rank recorded (I/O)."""

import inspect
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpu_plan.executor.accelerate_environment import accelerate_environment
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.engines.registry import find_engine
from gpu_plan.executor.launch.environment import batch_environment, device_environment, run_environment, strategy_names
from gpu_plan.executor.launch.prepare import RECORD_SECONDS
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.launch.write import write_launch_files
from gpu_plan.executor.names import ACCELERATE_FILE
from gpu_plan.executor.records.run import Attempt, RunRecord
from gpu_plan.executor.run_folder import RunFolder, create
from gpu_plan.executor.runner.function import ObservedFunction
from gpu_plan.executor.supervise.causes.classify import classify
from gpu_plan.executor.supervise.causes.evidence import Evidence
from gpu_plan.executor.supervise.causes.verdict import Verdict
from gpu_plan.executor.supervise.ledger import Ledger, new_record
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.plan.codec import plain
from gpu_plan.planner.plan.files import save
from gpu_plan.planner.plan.saved import SavedPlan
from gpu_plan.planner.strategy.known import traits_of
from gpu_plan.planner.workload.adapters import stored_adapters


def run_function(
    saved: SavedPlan,
    function: Callable[..., object],
    arguments: tuple[object, ...],
    working_directory: Path,
    environment: Mapping[str, str],
    check_parameters: bool,
) -> RunRecord:
    """Runs it once in as many processes as the plan has; gives the run's record. UsageError for several nodes."""
    if int(str(saved.cluster["nodes"])) > 1:
        raise UsageError("a function is run on this machine only: a plan for several nodes needs a script")
    job = Job(
        saved=saved,
        script=Path(inspect.getsourcefile(function) or "<notebook>"),
        working_directory=working_directory,
        environment=dict(environment),
        check_parameters=check_parameters,
        max_restarts=0,
    )
    folder = create(working_directory)
    save(saved, folder.plan)
    ledger = Ledger(folder, replace(new_record(job, folder.run_id), script=_name(function)))
    found = {**_environment(job, folder), **environment}
    name = f"accelerate.notebook_launcher({_name(function)})"
    attempt = Attempt(number=1, command=(name,), started=time.time(), strategy=plain(saved.plan.strategy))
    ledger.begin(attempt)
    code, signal, words = _launch(ObservedFunction(function, found), arguments, saved.plan.strategy.world_size)
    verdict = _verdict(folder, saved.plan.strategy.world_size, code, signal, words)
    last = min((rank.steps[-1].step for rank in folder.ranks() if rank.steps), default=None)
    ledger.update(
        replace(
            attempt,
            ended=time.time(),
            exit_code=code,
            cause=verdict.cause,
            culprit=verdict.culprit,
            explanation=verdict.explanation,
            last_step=last,
        )
    )
    status = {"success": "succeeded", "interrupted": "interrupted"}.get(verdict.cause, "failed")
    return ledger.end(status, verdict.exit_code, verdict.explanation)  # type: ignore[arg-type]


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _environment(job: Job, folder: RunFolder) -> dict[str, str]:
    """What `accelerate launch` would give the ranks, and what ties them to the run."""
    if traits_of(job.saved.plan.strategy.name).pipeline_parallel:
        raise UsageError("a function is not run in pipeline stages: write it into a script, or plan without --pp")
    target = Target(
        saved=job.saved, script=job.script, loop="accelerate", folder=folder.path, made_by=job.saved.command
    )
    ours = {
        **batch_environment(target),
        **device_environment(target),
        **run_environment(
            run_id=folder.run_id, folder=folder.path, attempt=1, resume_from=None, options=_options(job, target)
        ),
    }
    write_launch_files(find_engine("accelerate")(replace(target, environment=ours)), folder.path)
    return {**accelerate_environment(folder.path / ACCELERATE_FILE), **strategy_names(), **ours}


def _options(job: Job, target: Target) -> dict[str, object]:
    """What the recorder is told. The batch is the function's own affair: `current_plan()` tells it the planned one."""
    countable = job.check_parameters and not stored_adapters(job.saved.workload.get("peft")).quantises
    return {
        "expected_parameters": job.saved.model.parameters if countable else None,
        "checkpointing": "none" if target.wrapper_checkpoints else target.strategy.checkpointing,
        "record_seconds": RECORD_SECONDS,
        "data_loader": target.data_loader,
    }


def _launch(function: ObservedFunction, arguments: tuple[object, ...], world_size: int) -> tuple[int, str | None, str]:
    """Exit code, name of the signal that interrupted it, and what was raised."""
    from accelerate import notebook_launcher
    from torch.multiprocessing import start_processes

    try:
        if world_size > 1:
            port = function.environment.get("MASTER_PORT", "29500")
            notebook_launcher(function, arguments, num_processes=world_size, use_port=port)
        else:
            # In a process of its own, as the ranks of several are: nothing of the recorder stays in this one.
            start_processes(_Alone(function), arguments, nprocs=1, start_method="fork")
    except KeyboardInterrupt:
        return 130, "SIGINT", ""
    except Exception as error:
        return 1, None, f"{type(error).__name__}: {error}"
    return 0, None, ""


class _Alone:
    """Drops the process number that torch puts before a function's arguments."""

    def __init__(self, function: ObservedFunction) -> None:
        self.function = function

    def __call__(self, index: int, *arguments: object) -> None:
        self.function(*arguments)


def _verdict(folder: RunFolder, world_size: int, code: int, signal: str | None, words: str) -> Verdict:
    ranks = tuple(folder.ranks())
    return classify(
        Evidence(
            launcher_code=code,
            ranks=ranks,
            world_size=world_size,
            interrupted=signal,
            killed=frozenset({os.getpid()}),
            launcher_error=words.splitlines()[0] if words else "",
        )
    )
