"""Launch files on disk (I/O)."""

from pathlib import Path

from gpu_plan.executor.launch.files import LaunchFiles
from gpu_plan.executor.names import COMMAND_FILE
from gpu_plan.planner.errors import UnreachableError, UsageError
from gpu_plan.planner.plan.files import write_text


def write_launch_files(launch: LaunchFiles, folder: Path, *, force: bool = True) -> list[Path]:
    """Writes every file, each whole or not at all; gives their paths. Errors as `write_text` raises them.

    Without `force`, nothing is written where one of them is there already.
    """
    present = [folder / name for name in launch.files if (folder / name).exists()]
    if present and not force:
        raise UsageError(f"{present[0]} is there already: give --force to replace it, or name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreachableError(f"{folder} cannot be made: {error.strerror or error}") from None
    paths = []
    for name, content in launch.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, content, force=force)
        if name == COMMAND_FILE:
            path.chmod(0o755)
        paths.append(path)
    return paths
