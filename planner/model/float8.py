"""torchao's float8 training as accelerate sets it up, on the meta device: the real modules, converted in place."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.workload.precisions import in_float8

FLOAT8_LINEAR = "Float8Linear"
"""Class name of torchao's layer."""


def convert_linears(model: nn.Module, *, emulate: bool) -> None:
    """Swaps linear layers for torchao's, as accelerate does; nothing where that was done before.

    accelerate accelerator.py: _prepare_ao with the default AORecipeKwargs (utils/dataclasses.py: pad_inner_dim on) and
    utils/ao.py: convert_model_to_fp8_ao, which leaves out the first and the last linear layer and those whose sizes
    are no multiples of 16. What FSDP2 gathers in float8 is put in place by `gathered_weights`. `emulate`: products in
    fp32, for devices without float8. InputError where torchao is absent or would convert nothing.
    """
    if any(type(module).__name__ == FLOAT8_LINEAR for module in model.modules()):
        return
    with _quiet():
        try:
            from accelerate.utils.ao import convert_model_to_fp8_ao
            from torchao.float8 import Float8LinearConfig
        except ImportError:
            raise InputError(
                f"--precision {in_float8()} needs the torchao library: pip install 'gpu-plan[fp8]'"
            ) from None
        convert_model_to_fp8_ao(model, Float8LinearConfig(pad_inner_dim=True, emulate=emulate))
    if not float8_linears(model):
        name = type(model).__name__
        raise InputError(f"--precision {in_float8()}: {name} has no linear layer that torchao would convert")


_KEPT = "_plan_before_float8"


def keep_as_built(model: nn.Module) -> None:
    """Remembers the layers that a conversion in place swaps for others with the same parameters."""
    kept = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    object.__setattr__(model, _KEPT, (kept, set(dict(model.named_buffers(recurse=False)))))


def as_it_was_built(model: nn.Module) -> None:
    """Puts back what a conversion has swapped since `keep_as_built`, and takes away what it added to the model: what is
    traced next may not be in float8."""
    kept = model.__dict__.pop(_KEPT, None)
    if kept is None:
        return
    children, buffers = kept
    for parent, name, child in children:
        if getattr(parent, name) is not child:
            setattr(parent, name, child)
    for name in set(dict(model.named_buffers(recurse=False))) - buffers:
        delattr(model, name)


def float8_linears(model: nn.Module) -> tuple[str, ...]:
    """Names of the converted layers."""
    return tuple(name for name, module in model.named_modules() if type(module).__name__ == FLOAT8_LINEAR)


def wrapper_types() -> tuple[type, ...]:
    """Tensor types that hide a storage of float8 numbers behind a 16-bit face."""
    from torchao.float8.float8_training_tensor import Float8TrainingTensor

    return (Float8TrainingTensor,)


@contextlib.contextmanager
def gathered_weights(model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """For a time, weights as FSDP2's float8 all-gather leaves them; gives the storages behind them.

    torchao float8/fsdp_utils.py: WeightWithDynamicFloat8CastTensor.fsdp_post_all_gather makes one scale and one byte
    per element out of what was gathered, and shows them in the type of the policy's parameters.
    """
    from torchao.float8.float8_training_tensor import Float8TrainingTensor, GemmInputRole

    own: list[tuple[Any, nn.Parameter]] = []
    held: list[torch.Tensor] = []
    try:
        for name in float8_linears(model):
            module: Any = model.get_submodule(name)
            weight = module.weight
            data = torch.empty(weight.shape, dtype=module.config.cast_config_weight.target_dtype, device="meta")
            scale = torch.empty((), dtype=torch.float32, device="meta")
            whole = Float8TrainingTensor(
                data, scale, weight.dtype, module.linear_mm_config, gemm_input_role=GemmInputRole.WEIGHT
            )
            own.append((module, weight))
            held += [data, scale]
            module.weight = nn.Parameter(whole, requires_grad=weight.requires_grad)
        yield held
    finally:
        for module, weight in own:
            module.weight = weight


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torchao tells on import which of its compiled kernels do not load here; none of them is used."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
