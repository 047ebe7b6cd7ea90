"""Adafactor as the Trainer's `adafactor` makes it, without a first moment.

transformers/optimization.py (5.23): Adafactor.step, with scale_parameter and relative_step off as
trainer_optimizer.py: _get_adafactor sets them. Everything is computed in fp32, one parameter after another.
"""

import math
from collections.abc import Iterator, Sequence

from gpu_plan.planner.memory.optimizer.local_tensor import LocalTensor
from gpu_plan.planner.memory.optimizer.scratch import Scratch
from gpu_plan.planner.memory.optimizer.state import Kept

_FP32 = 4


def adafactor_state(tensor: LocalTensor) -> Iterator[Kept]:
    """Row and column sums of matrices, all elements of vectors, and a scalar RMS."""
    rows, columns = _factors(tensor)
    if columns:
        yield Kept("exp_avg_sq_row", rows)
        yield Kept("exp_avg_sq_col", columns)
    else:
        yield Kept("exp_avg_sq", tensor.as_dtype("float32"))
    yield Kept("RMS", _FP32)


def _factors(tensor: LocalTensor) -> tuple[int, int]:
    """Bytes of the row and the column factor; no column factor for a vector."""
    dims = tensor.dims
    if len(dims) < 2:
        return tensor.as_dtype("float32"), 0
    return _FP32 * math.prod(dims[:-1]), _FP32 * math.prod((*dims[:-2], dims[-1]))


def adafactor_step(scratch: Scratch, tensors: Sequence[LocalTensor]) -> None:
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


def _scaled_update(scratch: Scratch, tensor: LocalTensor, whole: int) -> None:
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
