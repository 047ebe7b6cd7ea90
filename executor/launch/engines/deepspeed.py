"""DeepSpeed's own launcher, for ZeRO."""

from gpu_plan.executor.launch.accelerate.config import accelerate_config
from gpu_plan.executor.launch.accelerate.environment import accelerate_environment
from gpu_plan.executor.launch.deepspeed.config import deepspeed_config
from gpu_plan.executor.launch.engines.portable import HERE, command_file
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.render import json_text
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.names import COMMAND_FILE, DEEPSPEED_FILE
from gpu_plan.planner.errors import UsageError

HOSTS_FILE = "hostfile"
VARIABLES_FILE = "deepspeed.env"


def launch_files(target: Target) -> LaunchFiles:
    """The DeepSpeed file, a host file where there are several nodes, and the command.

    UsageError for strategies that are not ZeRO.
    """
    if not target.uses_deepspeed:
        other = "accelerate" if target.goes_by_accelerate else "torchrun"
        raise UsageError(f"--to deepspeed runs ZeRO, and this plan is {target.strategy.name}: use --to {other}")
    variables = {**accelerate_environment(accelerate_config(target)), **target.environment}
    environment = dict(variables)
    if target.nodes > 1:
        # deepspeed/launcher/runner.py: other nodes get only the variables of the file that this one names.
        own = VARIABLES_FILE if target.observed else f".{VARIABLES_FILE}"
        environment["DS_ENV_FILE"] = str(target.folder / own)
    command = _command(target)
    files = {
        DEEPSPEED_FILE: json_text(deepspeed_config(target)),
        COMMAND_FILE: command_file(
            target, environment, command, completed=(VARIABLES_FILE,) if target.nodes > 1 else ()
        ),
    }
    if target.nodes > 1:
        files[HOSTS_FILE] = "".join(f"{_name(host)} slots={target.per_node}\n" for host in _hosts(target))
        lines = "".join(f"{name}={value}\n" for name, value in sorted(variables.items()))
        files[VARIABLES_FILE] = lines if target.observed else lines.replace(str(target.folder), HERE)
    return LaunchFiles(engine="deepspeed", files=files, environment=environment, command=command)


def _hosts(target: Target) -> tuple[str, ...]:
    return target.hosts or tuple(f"node{number}" for number in range(target.nodes))


def _name(host: str) -> str:
    return host.partition(":")[0]


def _command(target: Target) -> tuple[str, ...]:
    words = ["deepspeed"]
    if target.nodes > 1:
        host, port = target.endpoint
        words += ["--hostfile", str(target.folder / HOSTS_FILE), "--master_addr", host, "--master_port", str(port)]
    else:
        words += ["--num_gpus", str(target.per_node)]
    # Scripts read LOCAL_RANK from the environment; few take the --local_rank that the launcher would add.
    words.append("--no_local_rank")
    return (*words, *target.starter("--module"), target.script_word, *target.arguments)
