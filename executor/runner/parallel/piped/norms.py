"""Clipping by the norm of all stages: a rank's parameters are those of its own alone."""

import functools
import math
from typing import Any


def across_stages(torch: Any) -> None:
    """After `import torch`."""
    clip = _clip_grad_norm(torch.nn.utils.clip_grad_norm_)
    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = clip


def _clip_grad_norm(original: Any) -> Any:
    @functools.wraps(original)
    def clip_grad_norm_(
        parameters: Any,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Any:
        given = [parameters] if hasattr(parameters, "grad") else list(parameters)
        mesh = next((found for each in given if (found := getattr(each, "_pipeline_mesh", None)) is not None), None)
        if mesh is None:
            return original(given, max_norm, norm_type, error_if_nonfinite, foreach)
        import torch
        from torch.nn.utils import clip_grads_with_norm_

        total = _norm(torch, given, float(norm_type), foreach, mesh)
        if error_if_nonfinite and not torch.isfinite(total):
            raise RuntimeError(f"The total norm of order {norm_type} of the gradients is not finite: not clipped")
        clip_grads_with_norm_(given, max_norm, total, foreach)
        return total

    return clip_grad_norm_


def _norm(torch: Any, given: list[Any], norm_type: float, foreach: bool | None, mesh: Any) -> Any:
    """Of all stages' gradients, a weight that two of them hold counted once."""
    import torch.distributed as dist
    from torch.nn.utils import get_total_norm

    once = [each for each in given if each.grad is not None and not getattr(each, "_counted_elsewhere", False)]
    found = get_total_norm([each.grad for each in once], norm_type, False, foreach)
    found = found.full_tensor() if hasattr(found, "full_tensor") else found
    found = found.to(mesh.device)
    if math.isinf(norm_type):
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=mesh.pipeline)
        return found
    found = found.pow(norm_type)
    dist.all_reduce(found, group=mesh.pipeline)
    return found.pow(1 / norm_type)
