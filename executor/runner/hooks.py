"""Which imported module gets which hooks."""

from typing import Any

from executor.runner import accelerate_hooks, cpu_float8, cpu_ranks, deepspeed_hooks, saves, torch_hooks, trainer_hooks
from executor.runner.imports import PostImport
from executor.runner.observer import Observer
from executor.runner.recorder import Recorder


def install_hooks(recorder: Recorder) -> None:
    """Begins to watch the script's imports."""
    imports = PostImport(recorder.failed)
    imports.install()
    found: list[Observer] = []

    def observer() -> Observer | None:
        return found[0] if found else None

    def torch(module: Any) -> None:
        found.append(torch_hooks.install(module, recorder, imports))

    imports.when("torch", torch)
    imports.when("accelerate.accelerator", lambda module: accelerate_hooks.install(module, recorder, observer))
    imports.when("deepspeed.runtime.engine", lambda module: deepspeed_hooks.install(module, recorder))
    imports.when("transformers.trainer", lambda module: trainer_hooks.install_trainer(module, recorder, observer))
    for name in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
        imports.when(name, lambda module: trainer_hooks.install_lightning(module, observer))
    if recorder.options.cpu_ranks:
        cpu_ranks.install(imports)
    if recorder.options.cpu_float8:
        cpu_float8.install(imports)
    saves.install(recorder, imports)
