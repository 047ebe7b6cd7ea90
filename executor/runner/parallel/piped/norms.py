"""Clipping by the norm of all stages: a rank's parameters are those of its own alone."""

import math
from typing import Any

from gpu_plan.executor.runner.parallel.clipping import Clip, clip_by
from gpu_plan.executor.runner.parallel.meshes import by_mesh


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
    for group in by_mesh(each for each in asked.parameters if each.grad is not None):
        clip_grads_with_norm_(group, asked.max_norm, total, asked.foreach)
    return total


def _norm(asked: Clip, mesh: Any) -> Any:
    """Of all stages' gradients, a weight that two of them hold counted once."""
    import torch
    import torch.distributed as dist
    from torch.nn.utils import get_total_norm

    given = [each for each in asked.parameters if each.grad is not None]
    once = by_mesh(each for each in given if not getattr(each, "_counted_elsewhere", False))
    norms = [get_total_norm([each.grad for each in some], asked.norm_type, False, asked.foreach) for some in once]
    norms = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
    whole = norms or [torch.zeros(())]
    found = torch.linalg.vector_norm(torch.stack([norm.to(mesh.device) for norm in whole]), asked.norm_type)
    if math.isinf(asked.norm_type):
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=mesh.pipeline)
        return found
    found = found.pow(asked.norm_type)
    dist.all_reduce(found, group=mesh.pipeline)
    return found.pow(1 / asked.norm_type)
