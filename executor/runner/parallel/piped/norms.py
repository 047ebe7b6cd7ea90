"""Clipping by the norm of all stages: a rank's parameters are those of its own alone."""

import math
from typing import Any

from gpu_plan.executor.runner.parallel.clipping import Clip, clip_by


def across_stages(torch: Any) -> None:
    """After `import torch`."""
    clip_by(torch, _clip)


def _clip(asked: Clip) -> Any:
    """None for parameters of no pipeline."""
    mesh = next(
        (mesh for each in asked.parameters if (mesh := getattr(each, "_pipeline_mesh", None)) is not None), None
    )
    if mesh is None:
        return None
    import torch
    from torch.nn.utils import clip_grads_with_norm_

    total = _norm(asked, mesh)
    asked.check(torch, total)
    clip_grads_with_norm_(asked.parameters, asked.max_norm, total, asked.foreach)
    return total


def _norm(asked: Clip, mesh: Any) -> Any:
    """Of all stages' gradients, a weight that two of them hold counted once."""
    import torch.distributed as dist
    from torch.nn.utils import get_total_norm

    given = [each for each in asked.parameters if each.grad is not None]
    once = [each.grad for each in given if not getattr(each, "_counted_elsewhere", False)]
    found = get_total_norm(once, asked.norm_type, False, asked.foreach)
    found = found.full_tensor() if hasattr(found, "full_tensor") else found
    found = found.to(mesh.device)
    if math.isinf(asked.norm_type):
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=mesh.pipeline)
        return found
    found = found.pow(asked.norm_type)
    dist.all_reduce(found, group=mesh.pipeline)
    return found.pow(1 / asked.norm_type)
