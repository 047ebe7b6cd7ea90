"""Brings the planned degrees to whatever the script imports."""

from collections.abc import Callable
from typing import Any

from gpu_plan.executor.runner.imports import PostImport
from gpu_plan.executor.runner.parallel.checkpoints import through_accelerate, through_trainer
from gpu_plan.executor.runner.parallel.degrees import Degrees, read_degrees
from gpu_plan.executor.runner.parallel.meshes import by_mesh_alone
from gpu_plan.executor.runner.parallel.models import leave_as_they_are, spread_models, told_on_stderr
from gpu_plan.executor.runner.parallel.samples import (
    count_groups,
    count_replicas_once,
    read_by_each,
    refuse_copies,
    share_out,
)
from gpu_plan.executor.runner.parallel.sums import sum_each_pass


def install(imports: PostImport, say: Callable[[str], None] = told_on_stderr) -> None:
    """Before the script runs; where the environment names no degrees, only what other jobs have saved is read."""
    found = read_degrees()
    reads_spread(imports)
    if found is not None:
        _install(imports, found, say)


def reads_spread(imports: PostImport) -> None:
    """Checkpoints of spread models are read under every strategy, and written where a model is spread."""
    imports.when("accelerate.accelerator", through_accelerate)
    imports.when("transformers.trainer", through_trainer)


def _install(imports: PostImport, degrees: Degrees, say: Callable[[str], None]) -> None:
    def transformers(module: Any) -> None:
        spread_models(module, degrees, say)

    imports.when("torch", by_mesh_alone)
    imports.when("transformers.distributed.tensor_parallel", sum_each_pass)
    imports.when("torch.utils.data.distributed", lambda module: share_out(module, degrees))
    imports.when("torch.nn.parallel.distributed", refuse_copies)
    if degrees.tp_size > 1:
        imports.when("accelerate.data_loader", lambda module: read_by_each(module, degrees, say))
        imports.when("accelerate.scheduler", lambda module: count_groups(module, degrees))
        imports.when("transformers.trainer", count_replicas_once)
    imports.when("transformers.modeling_utils", transformers)
    imports.when("accelerate.accelerator", leave_as_they_are)
