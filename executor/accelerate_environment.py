"""The environment that `accelerate launch --config_file FILE` would give its ranks, made by Accelerate itself."""

import contextlib
import io
import os
from pathlib import Path


def accelerate_environment(config_file: Path) -> dict[str, str]:
    """Variables that the configuration adds to or changes in this process's environment.

    accelerate commands/launch.py: launch_command; utils/launch.py: prepare_multi_gpu_env, prepare_deepspeed_cmd_env,
    prepare_simple_launcher_cmd_env.
    """
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import (
        prepare_deepspeed_cmd_env,
        prepare_multi_gpu_env,
        prepare_simple_launcher_cmd_env,
    )

    words = ["--config_file", str(config_file), "--main_process_port", "0", "function.py"]
    with contextlib.redirect_stderr(io.StringIO()):
        args, defaults, mixed_given = _validate_launch_command(launch_command_parser().parse_args(words))
    if args.use_deepspeed and not args.cpu:
        fields = list(defaults.deepspeed_config) + (["mixed_precision"] if mixed_given else [])
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        _, environment = prepare_deepspeed_cmd_env(args)
    elif args.num_processes > 1 or args.use_fsdp:
        environment = prepare_multi_gpu_env(args)
    else:
        _, environment = prepare_simple_launcher_cmd_env(args)
    return {key: value for key, value in environment.items() if os.environ.get(key) != value}
