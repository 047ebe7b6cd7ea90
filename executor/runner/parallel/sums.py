"""Gradients that each rank has a part of are summed once for each backward pass, whatever was accumulated before.

transformers 5.23 (distributed/tensor_parallel.py: ReplicatedWithGradAllReduce, the norms of queries and keys of Qwen3
and its like) sums what a parameter has accumulated so far after every pass: with two micro batches the first one's sum
is summed again, and counts once for each rank. Here the sum is that of the pass, before it is added.
"""

from collections.abc import Callable
from typing import Any


def sum_each_pass(module: Any) -> None:
    """After `transformers.distributed.tensor_parallel` has been imported."""
    kind = getattr(module, "ReplicatedWithGradAllReduce", None)
    if kind is not None:
        kind.install_forward = _install_forward


def _install_forward(self: Any, module: Any, mesh: Any) -> Any:
    import torch

    forward = module.forward
    hooked: dict[str, Any] = {}

    def summing(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            # Only now do the parameters stand that the step will use: loading replaces those of the beginning.
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad and hooked.get(name) is not parameter:
                    parameter.register_hook(_sum(mesh))
                    hooked[name] = parameter
        return forward(*args, **kwargs)

    module.forward = summing
    return module


def _sum(mesh: Any) -> Callable[[Any], Any]:
    def sum_gradient(gradient: Any) -> Any:
        import torch.distributed as dist

        whole = gradient.clone()
        dist.all_reduce(whole, group=mesh.get_group())
        return whole

    return sum_gradient
