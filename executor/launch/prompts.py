"""How an inference run is launched: the prompt runner, or a script of the user's own, in one process or by torchrun."""

import os
from pathlib import Path

from gpu_plan.executor.inference.job import InferenceJob, inference_job
from gpu_plan.executor.job import Job
from gpu_plan.executor.launch.environment import exact_resident_memory, run_environment
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.render import shell_text
from gpu_plan.executor.launch.target import RUNNER
from gpu_plan.executor.names import COMMAND_FILE
from gpu_plan.executor.run_folder import RunFolder
from gpu_plan.planner.errors import UsageError
from gpu_plan.planner.memory.allocator.words import allocator_variable
from gpu_plan.planner.own_python import own_command

WORD = "@generate"
"""What `--execute` is given for the built-in prompt runner."""
SCRIPT = Path(__file__).parents[1] / "inference" / "generate.py"
RECORD_SECONDS = 0.5


def prepare_inference(job: Job, *, attempt: int, folder: RunFolder, resume_from: Path | None) -> LaunchFiles:
    """Command and environment; what the run is, its processes read from plan.json in the run folder.

    UsageError for a plan over several nodes, and for a notebook.
    """
    if len(job.hosts) > 1 or int(str(job.saved.cluster["nodes"])) > 1:
        raise UsageError("prompts are run on one node: plan with fewer GPUs, or one plan for each node")
    if job.script.suffix == ".ipynb":
        raise UsageError(
            f"{job.script} is a notebook, which ranks cannot be started from: write its cells into a script"
        )
    inference = inference_job(job.saved)
    environment = {
        **device_environment(job, inference),
        **run_environment(
            run_id=folder.run_id,
            folder=folder.path,
            attempt=attempt,
            resume_from=resume_from,
            options={"expected_parameters": None, "rebatch": False, "record_seconds": RECORD_SECONDS},
        ),
        **job.environment,
    }
    command = _command(job, inference, folder.logs)
    files = {COMMAND_FILE: shell_text(environment, command, job.command or job.saved.command)}
    engine = "torchrun" if inference.world_size > 1 else "python"
    return LaunchFiles(engine=engine, files=files, environment=environment, command=command)


def device_environment(job: Job, inference: InferenceJob) -> dict[str, str]:
    """Which devices the ranks use, and how memory is given out there."""
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
    if not inference.on_cpu:
        settings = job.saved.workload.get("settings")
        given = {str(key): str(value) for key, value in settings.items()} if isinstance(settings, dict) else {}
        variable = allocator_variable(given)
        return {**quiet, **({"PYTORCH_ALLOC_CONF": variable} if variable else {})}
    found = {"CUDA_VISIBLE_DEVICES": "", **quiet, **exact_resident_memory()}
    if inference.world_size > 1 and "OMP_NUM_THREADS" not in os.environ:
        found["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // inference.world_size))
    return found


def _command(job: Job, inference: InferenceJob, logs: Path) -> tuple[str, ...]:
    script = (str(job.script), *job.arguments)
    if inference.world_size == 1:
        return (*own_command(RUNNER), *script)
    words = [*own_command("torch.distributed.run"), "--standalone"]
    words += ["--nproc-per-node", str(inference.world_size), "--log-dir", str(logs), "--tee", "3"]
    return (*words, "-m", RUNNER, *script)
