"""An optimizer's groups and clipping, mesh by mesh: torch's list operations take tensors of one mesh at a time.

Weights that no rank splits are plain tensors beside DTensors, or DTensors of the data parallel ranks alone. Mirrors
transformers 5.23 trainer.py: create_optimizer, _mixed_mesh_grad_norm, for loops that are not the Trainer's.
"""

import functools
from collections.abc import Iterable
from typing import Any


def by_mesh_alone(torch: Any) -> None:
    """After `import torch`."""
    kind = torch.optim.Optimizer
    kind.add_param_group = _add_param_group(kind.add_param_group)
    clip = _clip_grad_norm(torch.nn.utils.clip_grad_norm_)
    torch.nn.utils.clip_grad_norm_ = torch.nn.utils.clip_grad.clip_grad_norm_ = clip


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


def _clip_grad_norm(original: Any) -> Any:
    """Torch's own where all gradients lie on one mesh."""

    @functools.wraps(original)
    def clip_grad_norm_(
        parameters: Any,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Any:
        given = [parameters] if hasattr(parameters, "grad") else list(parameters)
        groups = by_mesh(each for each in given if each.grad is not None)
        if len(groups) < 2:
            return original(given, max_norm, norm_type, error_if_nonfinite, foreach)
        return _clip(groups, max_norm, norm_type, error_if_nonfinite, foreach)

    return clip_grad_norm_


def _clip(groups: list[list[Any]], max_norm: float, norm_type: float, raises: bool, foreach: bool | None) -> Any:
    import torch
    from torch.nn.utils import clip_grads_with_norm_, get_total_norm

    norms = [get_total_norm([each.grad for each in group], norm_type, False, foreach) for group in groups]
    whole = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
    total = torch.linalg.vector_norm(torch.stack(whole), norm_type)
    if raises and not torch.isfinite(total):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients is non-finite, so it cannot be clipped.")
    for group in groups:
        clip_grads_with_norm_(group, max_norm, total, foreach)
    return total
