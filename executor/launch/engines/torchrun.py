"""`torchrun`: what Accelerate's launcher would set stands in the environment instead of a configuration file."""

from gpu_plan.executor.launch.accelerate.config import RENDEZVOUS, RENDEZVOUS_CONF, accelerate_config
from gpu_plan.executor.launch.accelerate.environment import accelerate_environment
from gpu_plan.executor.launch.deepspeed.config import deepspeed_config
from gpu_plan.executor.launch.engines.portable import command_file
from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.launch.render import json_text
from gpu_plan.executor.launch.target import Target
from gpu_plan.executor.names import COMMAND_FILE, DEEPSPEED_FILE


def launch_files(target: Target) -> LaunchFiles:
    """Command and environment for any strategy; the DeepSpeed file where ZeRO is used."""
    environment = {**accelerate_environment(accelerate_config(target)), **target.environment}
    command = _command(target)
    files = {COMMAND_FILE: command_file(target, environment, command)}
    if target.uses_deepspeed:
        files[DEEPSPEED_FILE] = json_text(deepspeed_config(target))
    return LaunchFiles(engine="torchrun", files=files, environment=environment, command=command)


def _command(target: Target) -> tuple[str, ...]:
    words = [*target.torchrun, "--nnodes", str(target.nodes), "--nproc-per-node", str(target.per_node)]
    if target.placed and target.nodes > 1:
        # torchrun reads the rest from PET_MASTER_ADDR, PET_MASTER_PORT and PET_NODE_RANK (its `env` action). Each node
        # then has the rank that its engine gave it; a new start is the engine's, so no agents need to agree on one.
        words += ["--rdzv-backend", "static"]
    elif target.nodes > 1:
        host, port = target.endpoint
        words += ["--rdzv-backend", RENDEZVOUS, "--rdzv-endpoint", f"{host}:{port}", "--rdzv-conf", RENDEZVOUS_CONF]
        words += ["--node-rank", str(target.machine_rank)]
    else:
        words.append("--standalone")
    if target.logs is not None:
        # Where nodes are placed, each names a folder of its own in PET_LOG_DIR.
        words += [*(() if target.placed else ("--log-dir", str(target.logs))), "--tee", "3"]
    return (*words, *target.starter("-m"), target.script_word, *target.arguments)
