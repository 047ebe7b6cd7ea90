"""What a policy of mixed precision casts on the way into a wrapped module and out of it."""

from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only


def cast_floats(dtype: torch.dtype, values: Any) -> Any:
    """torch/distributed/utils.py: _cast_forward_inputs, torch/distributed/fsdp/_fully_shard/_fsdp_common.py:
    _cast_fp_tensor: every tensor of floating point, wherever it lies in `values`."""
    return tree_map_only(torch.Tensor, lambda one: one.to(dtype) if one.is_floating_point() else one, values)


def cast_around(module: nn.Module, policy: Any) -> None:
    """Hooks of one module as FSDP2's state has them (_fsdp_state.py: _pre_forward, _post_forward)."""
    inputs, outputs = getattr(policy, "param_dtype", None), getattr(policy, "output_dtype", None)
    if inputs is not None and getattr(policy, "cast_forward_inputs", True):
        module.register_forward_pre_hook(lambda _, args, kwargs: cast_floats(inputs, (args, kwargs)), with_kwargs=True)
    if outputs is not None:
        module.register_forward_hook(lambda _, args, out: cast_floats(outputs, out))
