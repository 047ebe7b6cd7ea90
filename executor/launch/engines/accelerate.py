"""`accelerate launch` with a configuration file, and the DeepSpeed file that it names."""

from gpu_plan.executor.launch.accelerate.config import RENDEZVOUS, RENDEZVOUS_CONF, accelerate_config
from gpu_plan.executor.launch.accelerate.keys import check_config
from gpu_plan.executor.launch.deepspeed.config import deepspeed_config
from gpu_plan.executor.launch.engines.portable import command_file
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.render import json_text, yaml_text
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.names import ACCELERATE_FILE, COMMAND_FILE, DEEPSPEED_FILE
from gpu_plan.planner.errors import UsageError


def launch_files(target: Target) -> LaunchFiles:
    """Files, environment and command for any strategy."""
    if target.layout is not None:
        raise UsageError(
            f"--to accelerate cannot start {target.traits.title}: accelerate launch runs no pipeline; use --to torchrun"
        )
    if not target.goes_by_accelerate:
        raise UsageError(
            f"--to accelerate cannot start {target.traits.title}: beside its own FSDP2, Accelerate's tensor parallel"
            " imports what transformers has removed, and it has no experts over ranks; use --to torchrun"
        )
    config = accelerate_config(target)
    check_config(config)
    if target.uses_deepspeed and not target.observed:
        # Whoever reads the file alone finds the other beside it; the command says where that is.
        config["deepspeed_config"] = {**_table(config["deepspeed_config"]), "deepspeed_config_file": DEEPSPEED_FILE}
    files = {ACCELERATE_FILE: yaml_text(config, target.made_by)}
    if target.uses_deepspeed:
        files[DEEPSPEED_FILE] = json_text(deepspeed_config(target))
    command = _command(target)
    files[COMMAND_FILE] = command_file(target, target.environment, command)
    return LaunchFiles(engine="accelerate", files=files, environment=target.environment, command=command)


def _table(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _command(target: Target) -> tuple[str, ...]:
    words = [*target.launcher, "--config_file", str(target.folder / ACCELERATE_FILE)]
    if target.uses_deepspeed and not target.observed:
        words += ["--deepspeed_config_file", str(target.folder / DEEPSPEED_FILE)]
    if target.uses_deepspeed and target.precision.float8:
        # DeepSpeed's plugin refuses it in the file, and reads it from the launcher's environment.
        words += ["--mixed_precision", target.precision.launcher]
    if target.nodes > 1:
        # The file's rdzv_backend is passed over: the option's own default, `static`, is there already
        # (commands/launch.py: _validate_launch_command). is_host: which agent holds the store is said, not guessed.
        words += ["--rdzv_backend", RENDEZVOUS]
        is_host = int(target.machine_rank == 0)
        words += ["--rdzv_conf", f"{RENDEZVOUS_CONF},is_host={is_host}"]
    if target.logs is not None:
        # Without a folder the elastic agent leaves one behind under /tmp on every launch.
        words += ["--log_dir", str(target.logs), "--tee", "3"]
    return (*words, *target.starter("-m"), target.script_word, *target.arguments)
