"""What torch's sum over rows takes in global memory, where several blocks share an output.

pytorch aten/src/ATen/native/cuda/Reduce.cuh: setReduceConfig, ReduceConfig.set_block_dimension, global_memory_size,
semaphore_size, of a contiguous [rows, columns] of floating point summed over its rows (`gpu_reduce_kernel` of
ReduceSumProdKernel.cu: four inputs a thread, sums in fp32). Such a sum is the gradient of a bias.
"""

from dataclasses import dataclass
from functools import cached_property

_MAX_THREADS = 512
_WARP = 32
_VECTOR = 4
_SUM_BYTES = 4
_FEWEST_VALUES, _MOST_VALUES = 16, 256
"""min_values_per_thread, max_values_per_thread."""
_SEMAPHORE_BYTES = 4


@dataclass(frozen=True)
class Sums:
    """How a device sums [rows, columns] over rows: a block is so many columns wide and rows high."""

    columns: int
    sm_count: int
    threads_per_sm: int

    @cached_property
    def vector(self) -> int:
        """Outputs of one thread (get_output_vec_size)."""
        return next(size for size in (_VECTOR, 2, 1) if self.columns % size == 0)

    def _block(self, rows: int) -> tuple[int, int]:
        most = _MAX_THREADS // self.vector
        across, down = (min(_last_power(size), most) for size in (max(1, self.columns // self.vector), rows))
        height = min(down, most // min(across, _WARP))
        return min(across, most // height), height

    def partials(self, rows: int) -> tuple[int, int, int]:
        """Blocks that share an output (1: none do), columns of threads of a block, and blocks side by side."""
        width, height = self._block(rows)
        grid = _ceil(self.columns // self.vector, width)
        if rows < min(height * _FEWEST_VALUES, _MOST_VALUES):
            return 1, width, grid
        values = _ceil(rows, height)
        wanted = self.sm_count * (self.threads_per_sm // (width * height))
        if values < _MOST_VALUES or grid > wanted:
            return 1, width, grid
        shared = max(min(_ceil(wanted, grid), _ceil(values, _FEWEST_VALUES)), _ceil(values, _MOST_VALUES))
        return shared, width, grid


@dataclass(frozen=True, slots=True)
class RowPartials:
    """Bytes of the sums of every block: those of one thread for each of its outputs, as often as a block is wide."""

    sums: Sums

    def nbytes(self, count: int) -> int:
        """Of `count` rows."""
        shared, width, _ = self.sums.partials(count)
        return 0 if shared == 1 else _SUM_BYTES * self.sums.columns * shared * width * self.sums.vector

    @property
    def grain(self) -> int:
        return _SUM_BYTES * self.sums.columns * _WARP * self.sums.vector


@dataclass(frozen=True, slots=True)
class RowSemaphores:
    """Bytes by which blocks tell which of them comes last."""

    sums: Sums

    def nbytes(self, count: int) -> int:
        """Of `count` rows."""
        shared, _, grid = self.sums.partials(count)
        return 0 if shared == 1 else _SEMAPHORE_BYTES * grid

    @property
    def grain(self) -> int:
        return 0


def _last_power(size: int) -> int:
    """last_pow2."""
    return 1 << (max(1, size).bit_length() - 1)


def _ceil(size: int, by: int) -> int:
    return -(-size // by)
