"""Memory that CUDA's sums and means take while blocks of threads share one output.

Mirrors pytorch aten/src/ATen/native/cuda/Reduce.cuh: setReduceConfig, ReduceConfig (global_memory_size, semaphore_size)
and gpu_reduce_kernel. A gradient of a bias, summed over all tokens, is such a reduction: its staging buffer is some
100 MiB on a large GPU, whatever the batch. Plans do not count it yet: it comes and goes inside backward, and bends with
the batch where a trace is taken to be straight. Needs no torch: sizes and strides are given.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpu_plan.planner.units import ceil_div

_WARP = 32
_MAX_THREADS = 512
_VECTOR = 4
_MIN_VALUES, _MAX_VALUES = 16, 256
_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536, (12, 1): 1536}
"""Resident threads of a multiprocessor where they are not 2048 (CUDA C++ programming guide, compute capabilities)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A reduction as TensorIterator presents it: sizes in elements, strides in elements, ones left out."""

    reduced: tuple[tuple[int, int], ...]
    """(size, stride) of the dimensions that vanish, the fastest first."""
    kept: tuple[tuple[int, int], ...]

    @property
    def inputs(self) -> int:
        """Elements that make one output."""
        return _product(size for size, _ in self.reduced)

    @property
    def outputs(self) -> int:
        return _product(size for size, _ in self.kept)


def reduction_of(shape: Sequence[int], strides: Sequence[int], dims: Sequence[int] | None) -> Reduction:
    """`dims`: what is summed over; all of it where None or empty."""
    wanted = {dim % len(shape) for dim in dims} if dims and shape else set(range(len(shape)))
    sized = [(size, stride, index in wanted) for index, (size, stride) in enumerate(zip(shape, strides, strict=True))]
    return Reduction(
        reduced=_coalesced((size, stride) for size, stride, gone in sized if gone and size != 1),
        kept=_coalesced((size, stride) for size, stride, gone in sized if not gone and size != 1),
    )


def staging_bytes(
    reduction: Reduction, *, element: int, vector: int, capability: tuple[int, int], sm_count: int
) -> list[int]:
    """What gpu_reduce_kernel allocates: nothing, or staging buffer and semaphores.

    `element`: bytes of the type summed in; `vector`: input elements that one load brings (input_vec_size).
    """
    inputs, outputs = reduction.inputs, reduction.outputs
    if not inputs or not outputs:
        return []
    along = not reduction.kept or (bool(reduction.reduced) and reduction.reduced[0][1] < reduction.kept[0][1])
    first, second = (inputs, outputs) if along else (outputs, inputs)
    fastest = (reduction.reduced if along else reduction.kept)[:1]
    wide = 1
    if fastest and fastest[0][1] == 1:
        if not along:
            wide = _output_vector(reduction)
            first //= wide
        elif first >= 128 and len(reduction.reduced) == 1:
            first //= vector
    width, height = _block(first, second, _MAX_THREADS // wide)
    step_input, step_output = (width, 1) if along else (1, width)
    across = ceil_div(inputs, step_input) >= min(height * 16, _MAX_VALUES)
    step_input, step_output = (step_input * height, step_output) if across else (step_input, step_output * height)
    grid = ceil_div(outputs // wide, step_output)
    target = sm_count * (_THREADS.get(capability, 2048) // (width * height))
    values = ceil_div(inputs, step_input)
    if not across or values < _MAX_VALUES or grid > target:
        return []
    blocks = max(min(ceil_div(target, grid), ceil_div(values, _MIN_VALUES)), ceil_div(values, _MAX_VALUES))
    if blocks < 2:
        return []
    return [element * outputs * blocks * (1 if along else width * wide), 4 * grid]


def _block(first: int, second: int, most: int) -> tuple[int, int]:
    """set_block_dimension: width and height."""
    wide, high = _last_power(min(first, most)), _last_power(min(second, most))
    width = min(wide, _WARP)
    height = min(high, most // width)
    return min(wide, most // height), height


def _output_vector(reduction: Reduction) -> int:
    """get_output_vec_size: outputs are new and contiguous; their fastest dimension must divide."""
    size, vector = reduction.kept[0][0], _VECTOR
    while size % vector:
        vector //= 2
    return vector


def _coalesced(dims: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """TensorIterator: reorder_dimensions and coalesce_dimensions."""
    found: list[tuple[int, int]] = []
    for size, stride in sorted(dims, key=lambda dim: dim[1]):
        if found and found[-1][0] * found[-1][1] == stride:
            found[-1] = (found[-1][0] * size, found[-1][1])
        else:
            found.append((size, stride))
    return tuple(found)


def _product(sizes: Iterable[int]) -> int:
    return math.prod(sizes)


def _last_power(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)
