"""Adafactor as the Trainer's `adafactor` makes it, without a first moment, and torch's own.

transformers/optimization.py (5.23): Adafactor.step, with scale_parameter and relative_step off as
trainer_optimizer.py: _get_adafactor sets them. Everything is computed in fp32, one parameter after another.
torch/optim/_adafactor.py (2.13): Adafactor._init_group, _single_tensor_adafactor.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpu_plan.planner.workload.optimizers.foreach import plain_torch
from gpu_plan.planner.workload.optimizers.traits import Kept, OptimizerTraits, Scratch, Seen, passes

if TYPE_CHECKING:
    from gpu_plan.planner.workload.optimizers.local_tensor import LocalTensor

_FP32 = 4


def _state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    """Row and column sums of matrices, all elements of vectors, and a scalar RMS."""
    rows, columns = _factors(tensor)
    if columns:
        yield Kept("exp_avg_sq_row", rows)
        yield Kept("exp_avg_sq_col", columns)
    else:
        yield Kept("exp_avg_sq", tensor.as_dtype("float32"))
    yield Kept("RMS", _FP32)


def _factors(tensor: "LocalTensor") -> tuple[int, int]:
    """Bytes of the row and the column factor; no column factor for a vector."""
    dims = tensor.dims
    if len(dims) < 2:
        return tensor.as_dtype("float32"), 0
    return _FP32 * math.prod(dims[:-1]), _FP32 * math.prod((*dims[:-2], dims[-1]))


def _step(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
    """`grad`, `p_data_fp32` and `update` of one parameter stand until the next one's replace them."""
    for tensor in tensors:
        whole = tensor.as_dtype("float32")
        low = tensor.dtype in ("float16", "bfloat16")
        scratch.drop("grad")
        if low:
            scratch.bind("grad", whole, tensor.name)
        scratch.drop("p_data_fp32")
        if low:
            scratch.bind("p_data_fp32", whole, tensor.name)
        scratch.bind("square", whole, tensor.name)
        scratch.bind("update", whole, tensor.name)
        scratch.drop("square")
        _scaled_update(scratch, tensor, whole)
        scratch.bind("negative", whole, tensor.name)
        scratch.drop("negative")


def _scaled_update(scratch: Scratch, tensor: "LocalTensor", whole: int) -> None:
    """_approx_sq_grad for matrices, rsqrt for vectors."""
    rows, columns = _factors(tensor)
    if columns:
        for mean in (rows, columns):
            scratch.bind("mean", mean, tensor.name)
            scratch.drop("mean")
        scratch.bind("row_mean", rows // tensor.dims[-2], tensor.name)
        scratch.bind("r_factor", rows, tensor.name)
        scratch.drop("row_mean")
        scratch.bind("c_factor", columns, tensor.name)
    scratch.bind("update", whole, tensor.name)
    scratch.drop("r_factor", "c_factor")


def _torch_state(tensor: "LocalTensor", full_embeddings: bool) -> Iterator[Kept]:
    """As above, in the parameter's type and without the RMS; the step is counted on the host."""
    rows, columns = _torch_factors(tensor)
    if columns:
        yield Kept("row_var", rows)
        yield Kept("col_var", columns)
    else:
        yield Kept("variance", tensor.nbytes)


def _torch_factors(tensor: "LocalTensor") -> tuple[int, int]:
    dims = tensor.dims
    if len(dims) < 2:
        return tensor.nbytes, 0
    element = tensor.nbytes // max(1, tensor.numel)
    return element * math.prod(dims[:-1]), element * math.prod((*dims[:-2], dims[-1]))


def _torch_step(scratch: Scratch, tensors: Sequence["LocalTensor"]) -> None:
    """`update` and `var_estimate` are one storage, which stands while the next parameter's is made."""
    for tensor in tensors:
        rows, columns = _torch_factors(tensor)
        if columns:
            scratch.bind("row_mean", rows, tensor.name)
            scratch.bind("col_mean", columns, tensor.name)
            scratch.bind("var_estimate", tensor.nbytes, tensor.name)
            scratch.bind("mean", rows // tensor.dims[-2], tensor.name)
            scratch.drop("mean")
        else:
            scratch.bind("grad_squared", tensor.nbytes, tensor.name)
            scratch.bind("var_estimate", tensor.nbytes, tensor.name)
        scratch.move("var_estimate", "update")


def _of_torch(seen: Seen) -> bool:
    """Its default, the loop over tensors (torch/optim/_adafactor.py: adafactor takes lists only where asked to)."""
    return plain_torch(seen) and seen.name == "Adafactor" and not any(map(seen.options.get, ("foreach", "maximize")))


KINDS = (
    OptimizerTraits(
        name="adafactor",
        place=50,
        help="transformers'",
        state=_state,
        step=_step,
        # Square, plus epsilon, two means, outer product, times gradient, norm, two scalings, negation, addition, and
        # the norm of the weights.
        traffic=passes(17),
        saved_bytes=(0.1, 0.1),
        package="",
        takes_dtensors=False,
        optim="adafactor",
        captured=lambda seen: seen.name == "Adafactor" and not seen.is_bitsandbytes and not seen.is_torch,
        ran=lambda found: found.kind == "adafactor" and found.package != "torch",
        classes=("Adafactor",),
        explored=30,
    ),
    OptimizerTraits(
        name="adafactor-torch",
        place=60,
        help="torch's",
        state=_torch_state,
        step=_torch_step,
        # two norms, an outer product, div (2), clamp (2), rsqrt (2), mul (3), norm, add (3), and the weights' norm
        traffic=passes(17),
        saved_bytes=(0.1, 0.1),
        package="",
        takes_dtensors=False,
        captured=_of_torch,
        ran=lambda found: found.kind == "adafactor" and found.package == "torch",
        explored=None,
    ),
)
