"""A micro batch made of the inputs that a user's factory returned with its module."""

import inspect
from typing import Any

import torch
from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.trace.inputs.batch import TrainingBatch


def given_batch(
    model: nn.Module, inputs: dict[str, Any] | tuple[Any, ...], *, batch: int | None = None
) -> TrainingBatch:
    """`inputs` on meta as keywords of `model.forward`, their first dimension set to `batch` samples.

    The first tensor's first dimension is the micro batch as given; tensors that share it are resized, others
    are kept whole. `batch=None` keeps what was given. InputError, one line, when the inputs do not match the
    forward's parameters or hold no tensor.
    """
    named = _named(model, inputs)
    sizes = [value.shape[0] for value in named.values() if isinstance(value, torch.Tensor) and value.dim() > 0]
    if not sizes:
        raise InputError(f"the inputs given for {type(model).__name__} hold no tensor with a batch dimension")
    given, wanted = sizes[0], sizes[0] if batch is None else batch
    if given < 1 or wanted < 1:
        raise InputError(f"the inputs given for {type(model).__name__} have a micro batch of {min(given, wanted)}")
    tensors: dict[str, Any] = {}
    values: dict[str, torch.Tensor] = {}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            tensors[name] = value
            continue
        shape = tuple(value.shape)
        if shape and shape[0] == given:
            shape = (wanted, *shape[1:])
        tensors[name] = torch.empty(shape, dtype=value.dtype, device="meta", requires_grad=value.requires_grad)
        if value.device.type == "cpu" and not value.is_floating_point() and not value.is_complex():
            values[name] = _resized(value.detach(), shape)
    return TrainingBatch(tensors=tensors, values=values, loss="the module's own, from the inputs it was given")


def given_micro_batch(model: nn.Module, inputs: dict[str, Any] | tuple[Any, ...]) -> int:
    """First dimension of the first tensor among `inputs`."""
    tensors = given_batch(model, inputs).tensors.values()
    return next(int(value.shape[0]) for value in tensors if isinstance(value, torch.Tensor) and value.dim())


def _named(model: nn.Module, inputs: dict[str, Any] | tuple[Any, ...]) -> dict[str, Any]:
    signature = inspect.signature(model.forward)
    try:
        if isinstance(inputs, dict):
            signature.bind(**inputs)
            return dict(inputs)
        bound = signature.bind(*inputs)
    except TypeError as problem:
        raise InputError(f"the inputs do not fit {type(model).__name__}.forward: {problem}") from None
    for name in bound.arguments:
        if signature.parameters[name].kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.POSITIONAL_ONLY,
        ):
            raise InputError(
                f"{type(model).__name__}.forward takes {name} by position only; "
                "let the factory return inputs as a dict and name its parameters"
            )
    return dict(bound.arguments)


def _resized(value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """`value` with its rows repeated or cut to `shape[0]`."""
    if tuple(value.shape) == shape:
        return value.clone()
    rows = torch.arange(shape[0], device="cpu") % value.shape[0]
    return value.index_select(0, rows)
