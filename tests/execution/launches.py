"""Launches the jobs of tests/execution/jobs on CPU processes and reads what their ranks recorded."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gpu_plan.executor import names
from gpu_plan.executor.launch.environment import strategy_names
from gpu_plan.executor.records.rank import RankRecord
from gpu_plan.executor.run_folder import RunFolder

BIN = Path(sys.executable).parent
JOBS = Path(__file__).parent / "jobs"
ROOT = Path(__file__).resolve().parents[2]

_FSDP = """fsdp_config:
  fsdp_version: {version}
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_state_dict_type: SHARDED_STATE_DICT
"""
_FSDP1 = """  fsdp_sharding_strategy: FULL_SHARD
  fsdp_sync_module_states: false
  fsdp_cpu_ram_efficient_loading: false
"""
_SECTIONS = {
    "single": ("'NO'", ""),
    "ddp": ("MULTI_GPU", ""),
    "fsdp": ("FSDP", _FSDP.format(version=2) + "  fsdp_reshard_after_forward: true\n"),
    "fsdp-checkpointed": (
        "FSDP",
        _FSDP.format(version=2) + "  fsdp_reshard_after_forward: true\n  fsdp_activation_checkpointing: true\n",
    ),
    "fsdp1": ("FSDP", _FSDP.format(version=1) + _FSDP1 + "  fsdp_use_orig_params: true\n"),
    "fsdp1-flat": (
        "FSDP",
        _FSDP.format(version=1) + _FSDP1 + "  fsdp_use_orig_params: false\n",
    ),
    "hsdp": (
        "FSDP",
        _FSDP.format(version=2)
        + "  fsdp_reshard_after_forward: true\nparallelism_config:\n"
        + "  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Launched:
    """One launch that has ended."""

    code: int
    output: str
    ranks: list[RankRecord]
    folder: Path

    def truth(self, rank: int = 0) -> dict:
        """What the job itself wrote down."""
        return json.loads((self.folder / f"truth-{rank}.json").read_text())


def launch(
    folder: Path,
    job: str,
    *arguments: str,
    strategy: str = "ddp",
    ranks: int = 2,
    accumulation: int = 1,
    precision: str = "no",
    options: dict | None = None,
    environment: dict[str, str | None] | None = None,
    timeout: float = 1500,
) -> Launched:
    """`accelerate launch` of a job under the runner, with the traps of CPU launches avoided.

    `environment` is added; a None takes a variable away.
    """
    config = folder / "accelerate.yaml"
    config.write_text(_config(folder, strategy, ranks, accumulation, precision))
    env = environment_for(folder, options or {}, strategy)
    for name, value in (environment or {}).items():
        env.pop(name, None) if value is None else env.update({name: value})
    if not strategy.startswith("zero"):
        env["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = str(accumulation)
    command = [str(BIN / "accelerate"), "launch", "--config_file", str(config), "--main_process_port", "0"]
    command = command[:4] if strategy == "single" else command
    return run(folder, [*command, "-m", "gpu_plan.executor.runner", str(JOBS / job), *arguments], env, timeout)


def torchrun(
    folder: Path, job: str, *arguments: str, ranks: int = 2, options: dict | None = None, timeout: float = 1500
) -> Launched:
    """The same through torchrun alone."""
    command = [str(BIN / "torchrun"), "--nproc-per-node", str(ranks), "--rdzv-backend", "c10d"]
    command += [
        "--rdzv-endpoint",
        "127.0.0.1:0",
        "--log-dir",
        str(folder / "torchrun"),
        "-m",
        "gpu_plan.executor.runner",
    ]
    return run(
        folder, [*command, str(JOBS / job), *arguments], environment_for(folder, options or {}, "plain"), timeout
    )


def directly(
    folder: Path, job: str, *arguments: str, options: dict | None = None, environment: dict[str, str] | None = None
) -> Launched:
    """One process without a launcher."""
    env = environment_for(folder, options or {}, "single") | (environment or {})
    return run(folder, [sys.executable, "-m", "gpu_plan.executor.runner", str(JOBS / job), *arguments], env, 1500)


def run(folder: Path, command: list[str], env: dict[str, str], timeout: float) -> Launched:
    """Runs the command in a session of its own, which is ended whatever happens."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return Launched(code=process.returncode, output=output, ranks=list(RunFolder(folder).ranks()), folder=folder)


def environment_for(folder: Path, options: dict, strategy: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ACCELERATE_", "GPU_PLAN_"))}
    env = kept | {
        names.RUN_ID: folder.name,
        names.RUN_FOLDER: str(folder),
        names.ATTEMPT: "1",
        names.OPTIONS: json.dumps(options),
        **strategy_names(),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ROOT / "src"),
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": str(folder),
    }
    if strategy.startswith(("fsdp", "hsdp", "zero")):
        return env | {names.CPU_RANKS: "1", "ACCELERATE_TORCH_DEVICE": "cpu"}
    return env if strategy == "plain" else env | {"ACCELERATE_USE_CPU": "true"}


def _config(folder: Path, strategy: str, ranks: int, accumulation: int, precision: str) -> str:
    kind, section = _SECTIONS.get(strategy, ("DEEPSPEED", ""))
    head = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nmachine_rank: 0\n"
    head += f"num_processes: {ranks}\ndistributed_type: {kind}\n"
    if not strategy.startswith("zero"):
        return head + f"mixed_precision: '{precision}'\n" + section
    content = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": accumulation,
        "zero_optimization": {"stage": int(strategy[4])},
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": precision == "bf16"},
    }
    (folder / "deepspeed.json").write_text(json.dumps(content))
    return head + f"deepspeed_config:\n  deepspeed_config_file: {folder / 'deepspeed.json'}\n  zero3_init_flag: false\n"
