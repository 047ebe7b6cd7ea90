"""What a rank of tensor parallel holds of quantised layers, once transformers' plan has split their parameters."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.model.quantization.layers.torchao_weights import keeps_part
from gpu_plan.planner.trace.parallel.errors import CannotSplitError
from gpu_plan.planner.trace.parallel.tensor import is_split, local_tensor

_SCALES = "_scale_inv"
"""What transformers calls the scales of an FP8 parameter, behind its name (integrations/finegrained_fp8.py)."""


def take_parts(model: Any) -> None:
    """Finishes `shard` for a quantised model, in place; others are left alone.

    CannotSplitError, in one line, where a rank would get a part of what shares one scale.
    """
    for name, module in model.named_modules():
        try:
            keeps_part(module, local_tensor)
        except InputError as problem:
            raise CannotSplitError(f"{name}: {problem}") from None
        for own, weight, block in _in_blocks(module):
            _check(f"{name}.{own}", weight, block)


def _in_blocks(module: nn.Module) -> Iterator[tuple[str, Any, tuple[int, int]]]:
    """Parameters with a scale for each block of rows and columns."""
    block = getattr(module, "block_size", None)
    parameters = dict(module.named_parameters(recurse=False))
    for name, parameter in parameters.items():
        if name + _SCALES in parameters and is_split(parameter):
            if block is None and parameter.dim() > 2:
                raise CannotSplitError(
                    f"{type(module).__name__} has one scale for each expert, which ranks do not share"
                )
            if block is not None:
                yield name, parameter, (int(block[0]), int(block[1]))


def _check(name: str, weight: Any, block: tuple[int, int]) -> None:
    """finegrained-fp8 and DeepGEMM take one scale for each whole block of what a rank holds."""
    local = local_tensor(weight)
    for axis, size in zip((-2, -1), block, strict=True):
        if local.shape[axis] != weight.shape[axis] and local.shape[axis] % size:
            raise CannotSplitError(
                f"{name}: a rank would get {local.shape[axis]} of {weight.shape[axis]} rows or columns, which are"
                f" quantised in blocks of {size}: take fewer ranks with --tp"
            )
