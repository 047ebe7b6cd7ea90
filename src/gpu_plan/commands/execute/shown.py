"""Launch files and their command as text, for --dry-run and export."""

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_plan.executor.launch.files import LaunchFiles


def shown(launch: "LaunchFiles") -> str:
    """Every file in full, then the command."""
    parts = [f"# ---- {name}\n{content.rstrip()}\n" for name, content in launch.files.items()]
    return "\n".join([*parts, f"# ---- command\n{command_line(launch)}\n"])


def command_line(launch: "LaunchFiles") -> str:
    """The whole launch command, with its environment, as a shell takes it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(launch.environment.items())]
    return " ".join([*variables, shlex.join(launch.command)])
