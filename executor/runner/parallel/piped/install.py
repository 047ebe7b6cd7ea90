"""Brings the planned stages to whatever the script imports."""

import sys
from collections.abc import Callable
from typing import Any

from gpu_plan.executor.runner.imports import PostImport
from gpu_plan.executor.runner.parallel.meshes import group_by_mesh
from gpu_plan.executor.runner.parallel.models import leave_as_they_are
from gpu_plan.executor.runner.parallel.piped.layout import read_layout
from gpu_plan.executor.runner.parallel.piped.loaders import by_pipeline, refuse_copies
from gpu_plan.executor.runner.parallel.piped.norms import across_stages
from gpu_plan.executor.runner.parallel.samples import count_groups, share_out
from gpu_plan.executor.runner.parallel.sums import sum_each_pass


def _on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def install(imports: PostImport, say: Callable[[str], None] = _on_stderr) -> None:
    """Before the script runs; nothing where the environment names no stages."""
    layout = read_layout()
    if layout is None:
        return

    def transformers(module: Any) -> None:
        try:
            from gpu_plan.executor.runner.parallel.piped.models import cut_models

            cut_models(module, layout, say)
        except Exception as problem:  # else every rank would train a whole model by itself
            raise SystemExit(f"models of this transformers cannot be cut into stages: {problem!r}") from problem

    def accelerate(module: Any) -> None:
        by_pipeline(module, layout)
        leave_as_they_are(module)

    imports.when("torch", across_stages)
    if layout.together > 1:
        imports.when("torch", group_by_mesh)
        imports.when("transformers.distributed.tensor_parallel", sum_each_pass)
    imports.when("torch.utils.data.distributed", lambda module: share_out(module, layout))
    imports.when("torch.nn.parallel.distributed", refuse_copies)
    imports.when("accelerate.scheduler", lambda module: count_groups(module, layout))
    imports.when("transformers.modeling_utils", transformers)
    imports.when("accelerate.accelerator", accelerate)
