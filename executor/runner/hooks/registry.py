"""Which imported module gets which hooks."""

import os
import time
from typing import Any

from gpu_plan.executor.runner.cpu import float8 as cpu_float8
from gpu_plan.executor.runner.cpu import ranks as cpu_ranks
from gpu_plan.executor.runner.hooks import accelerate as accelerate_hooks
from gpu_plan.executor.runner.hooks import deepspeed as deepspeed_hooks
from gpu_plan.executor.runner.hooks import pytorch as torch_hooks
from gpu_plan.executor.runner.hooks import trainer as trainer_hooks
from gpu_plan.executor.runner.imports import PostImport
from gpu_plan.executor.runner.observe import resized
from gpu_plan.executor.runner.observe.observer import Observer
from gpu_plan.executor.runner.parallel import spread
from gpu_plan.executor.runner.parallel.piped import install as piped
from gpu_plan.executor.runner.recorder import Recorder
from gpu_plan.executor.runner.saving import hooks as saves


def install_hooks(recorder: Recorder) -> None:
    """Begins to watch the script's imports."""
    imports = PostImport(recorder.failed)
    imports.install()
    found: list[Observer] = []

    def observer() -> Observer | None:
        return found[0] if found else None

    def torch(module: Any) -> None:
        recorder.moments.setdefault("torch", time.time())
        recorder.write()
        found.append(torch_hooks.install(module, recorder, imports))

    imports.when("torch", torch)
    imports.when("accelerate.accelerator", lambda module: accelerate_hooks.install(module, recorder, observer))
    imports.when("deepspeed.runtime.engine", lambda module: deepspeed_hooks.install(module, recorder))
    imports.when("transformers.trainer", lambda module: trainer_hooks.install_trainer(module, recorder, observer))
    imports.when("transformers.modeling_utils", resized.watch)
    imports.when("transformers.training_args", lambda module: trainer_hooks.install_arguments(module, recorder))
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    for package in ("lightning.pytorch", "pytorch_lightning"):
        imports.when(f"{package}.trainer.trainer", lambda module: trainer_hooks.install_lightning(module, observer))
        imports.when(
            f"{package}.accelerators.cpu", lambda module: trainer_hooks.install_lightning_cpu(module, local_ranks)
        )
    if recorder.options.cpu_ranks:
        cpu_ranks.install(imports)
    if recorder.options.cpu_float8:
        cpu_float8.install(imports)
    spread.install(imports, recorder.note)
    piped.install(imports, recorder.note)
    saves.install(recorder, imports)
