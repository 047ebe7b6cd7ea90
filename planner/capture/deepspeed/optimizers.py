"""DeepSpeed's fused optimizers without the kernels that they compile, and those that its configuration names."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from gpu_plan.planner.errors import InputError


class FusedAdam(torch.optim.AdamW):
    """Allocates what deepspeed/ops/adam/fused_adam.py does: two moments of each parameter."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *_: Any,
        **__: Any,
    ) -> None:
        super().__init__(params, lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay, fused=True)


class DeepSpeedCPUAdam(FusedAdam):
    """deepspeed/ops/adam/cpu_adam.py: the same, on the host where the optimizer is offloaded."""

    def __init__(
        self,
        model_params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *_: Any,
        **__: Any,
    ) -> None:
        super().__init__(model_params, lr, bias_correction, betas, eps, weight_decay=weight_decay)


FusedAdam.__module__ = DeepSpeedCPUAdam.__module__ = "deepspeed.ops.adam"
_SGD = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
_ADAM = ("lr", "betas", "eps", "weight_decay")


def named(kind: str, options: Mapping[str, Any], parameters: Iterable[Any]) -> torch.optim.Optimizer:
    """What the configuration's `optimizer` table means (runtime/engine.py: _configure_basic_optimizer).

    InputError for a type that no plan knows.
    """
    given = {key: value for key, value in options.items() if value != "auto"}
    if kind in ("adam", "adamw"):
        if options.get("torch_adam"):
            return torch.optim.AdamW(parameters, **{key: given[key] for key in _ADAM if key in given})
        return FusedAdam(parameters, **{key: given[key] for key in _ADAM if key in given})
    if kind == "sgd":
        return torch.optim.SGD(parameters, **{key: given[key] for key in _SGD if key in given})
    raise InputError(f"DeepSpeed's configuration names the optimizer {kind}, which no plan knows: adam, adamw or sgd")
