"""Which imported module gets which hooks."""

from executor.runner import torch_hooks
from executor.runner.imports import PostImport
from executor.runner.recorder import Recorder


def install_hooks(recorder: Recorder) -> None:
    """Begins to watch the script's imports."""
    imports = PostImport(recorder.failed)
    imports.install()
    imports.when("torch", lambda module: torch_hooks.install(module, recorder))
