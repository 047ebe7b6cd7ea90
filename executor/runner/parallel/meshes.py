"""An optimizer's groups and clipping, mesh by mesh: torch's list operations take tensors of one mesh at a time.

Weights that no rank splits are plain tensors beside DTensors, or DTensors of the data parallel ranks alone. Mirrors
transformers 5.23 trainer.py: create_optimizer, _mixed_mesh_grad_norm, for loops that are not the Trainer's.
"""

import functools
from collections.abc import Iterable
from typing import Any

from gpu_plan.executor.runner.parallel.clipping import Clip, clip_by


def by_mesh_alone(torch: Any) -> None:
    """After `import torch`."""
    group_by_mesh(torch)
    clip_by(torch, _clip)


def group_by_mesh(torch: Any) -> None:
    """After `import torch`: an optimizer's groups are of one mesh each."""
    kind = torch.optim.Optimizer
    kind.add_param_group = _add_param_group(kind.add_param_group)


def by_mesh(items: Iterable[Any]) -> list[list[Any]]:
    """Parameters, or pairs of a name and one, that lie on the same mesh, in the order of their first ones."""
    found: dict[Any, list[Any]] = {}
    for item in items:
        tensor = item[1] if isinstance(item, tuple) else item
        found.setdefault(getattr(tensor, "device_mesh", None), []).append(item)
    return list(found.values())


def _add_param_group(original: Any) -> Any:
    """One group for each mesh."""

    @functools.wraps(original)
    def add_param_group(self: Any, param_group: Any) -> None:
        given = param_group.get("params") if isinstance(param_group, dict) else None
        if given is None or hasattr(given, "dtype"):  # nothing, or one tensor
            original(self, param_group)
            return
        given = given if isinstance(given, (set, frozenset)) else list(given)
        groups = by_mesh(given)
        if len(groups) < 2:
            original(self, {**param_group, "params": given})
            return
        for each in groups:
            original(self, {**param_group, "params": each})

    return add_param_group


def _clip(asked: Clip) -> Any:
    """None where all gradients lie on one mesh."""
    groups = by_mesh(each for each in asked.parameters if each.grad is not None)
    if len(groups) < 2:
        return None
    import torch
    from torch.nn.utils import clip_grads_with_norm_, get_total_norm

    norms = [get_total_norm([each.grad for each in group], asked.norm_type, False, asked.foreach) for group in groups]
    whole = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
    total = torch.linalg.vector_norm(torch.stack(whole), asked.norm_type)
    asked.check(torch, total)
    for group in groups:
        clip_grads_with_norm_(group, asked.max_norm, total, asked.foreach)
    return total
