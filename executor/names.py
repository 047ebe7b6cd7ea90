"""Names that the launching process, the ranks and the run folder share: environment variables and files."""

RUN_ID = "GPU_PLAN_RUN_ID"
"""In the environment of every process of a run: how strays are found."""
DAEMON = "GPU_PLAN_DAEMON"
"""Set to 1 in the environment of a process that may outlive its run, by whoever starts it."""
RUN_FOLDER = "GPU_PLAN_RUN_FOLDER"
"""Absolute path of the run folder; set for every rank."""
ATTEMPT = "GPU_PLAN_ATTEMPT"
"""Number of the attempt, from 1."""
RESUME_FROM = "GPU_PLAN_RESUME_FROM"
"""Absolute path of the checkpoint to resume from; absent for a fresh start."""
MICRO_BATCH_SIZE = "GPU_PLAN_MICRO_BATCH_SIZE"
GRADIENT_ACCUMULATION_STEPS = "GPU_PLAN_GRADIENT_ACCUMULATION_STEPS"
SEQUENCE_LENGTH = "GPU_PLAN_SEQUENCE_LENGTH"
"""The planned batch, for scripts that read their configuration from the environment."""
CPU_RANKS = "GPU_PLAN_CPU_RANKS"
"""Set to 1 where ranks are CPU processes joined by gloo under a strategy that Accelerate runs on GPUs only."""
CPU_FLOAT8 = "GPU_PLAN_CPU_FLOAT8"
"""Set to 1 where ranks on a CPU train with torchao's float8 layers: their products are emulated."""
OPTIONS = "GPU_PLAN_RUNNER"
"""JSON object of options for the in-rank runner: see gpu_plan.executor.runner.options."""
STRATEGIES = "GPU_PLAN_STRATEGIES"
"""JSON object: name of a strategy by what a rank finds around its model, see runner/observe/wrapping.py. Set for
every rank that is observed."""
HANG_SECONDS = "GPU_PLAN_HANG_SECONDS"
"""For whoever launches: the least time without a step that is a hang, in seconds; 0 never."""

RUNS_FOLDER = "runs"
PLAN_FILE = "plan.json"
RUN_FILE = "run.json"
ENVIRONMENT_FILE = "environment.json"
LOGS_FOLDER = "logs"
CHECKPOINTS_FOLDER = "checkpoints"
CONVERTED_FOLDER = "converted"
"""Checkpoints made for another strategy or number of ranks; apart, since scripts number what is in their own folder."""
ACCELERATE_FILE = "accelerate.yaml"
DEEPSPEED_FILE = "deepspeed.json"
COMMAND_FILE = "command.sh"
ENGINE_FOLDER, ENGINE_FILE = "engine", "engine.json"
"""Of a run that an engine places: what it was given, and what it wrote."""


def rank_file(rank: int) -> str:
    """Name of a rank's record in the run folder."""
    return f"rank-{rank}.json"


def attempt_folder(attempt: int) -> str:
    """Name of the folder to which an ended attempt's rank records and launch files move when the next one begins."""
    return f"attempt-{attempt}"


def rank_of(stem: str) -> int | None:
    """The rank in `rank-3`; None for anything else, `rank-²` and numbers that no job has among them."""
    digits = stem.removeprefix("rank-")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 8 else None
