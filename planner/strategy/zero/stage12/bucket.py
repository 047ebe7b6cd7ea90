"""ZeRO-1 and ZeRO-2: gradients on their way through the reduce bucket into the rank's partition.

Mirrors deepspeed/runtime/zero/stage_1_and_2.py: setup_buckets, reduce_independent_p_g_buckets_and_remove_grads,
average_tensor, reduce_ipg_grads, copy_grads_in_partition, independent_gradient_partition_epilogue.

With overlap_comm a bucket is reduced, and its gradients put where they belong, on a stream of its own: what is made
there comes from that stream's pool (average_tensor, reduce_ipg_grads). Nothing waits for it: the stream is recorded on
its own blocks and on the buckets alone (allreduce_and_copy_with_multiple_ranks), and those go when the device has been
waited for (independent_gradient_partition_epilogue).
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from gpu_plan.planner.memory.schedule import DEFAULT_STREAM
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Pass, Point
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import nbytes
from gpu_plan.planner.strategy.zero.common import MASTER, NORM, ZeroConfig
from gpu_plan.planner.strategy.zero.stage12.flat import Ownership, Slice, flatten_copies
from gpu_plan.planner.trace.events import Category

_REDUCTION_STREAM = 1
"""reduction_stream."""


@dataclass(slots=True, kw_only=True)
class Bucket:
    """What one rank's reductions allocate and free, over all micro steps."""

    builder: StreamBuilder
    config: ZeroConfig
    dtype: str
    owned: Ownership
    slices: Mapping[int, Sequence[Slice]]
    """Of every trainable parameter, over all ranks."""
    partitioned: bool
    """ZeRO-2: what other ranks own is dropped at once."""
    offload: bool
    reduced: list[tuple[int, int]] = field(default_factory=list)
    """Elements and gradients of every reduction of the current micro step."""
    partition: Handle | None = None
    """Storage of this micro step's reduced gradients (grads_in_partition)."""
    kept: Handle | None = None
    """The same of the accumulation's first micro step, to which later ones are added."""
    _buffers: list[Handle] = field(default_factory=list)
    _held: list[tuple[int, Pass]] = field(default_factory=list)
    _late: list[tuple[int, Pass]] = field(default_factory=list)
    _elements: int = 0
    _mine: frozenset[int] = frozenset()
    _numel: dict[int, int] = field(default_factory=dict)

    @property
    def _pool(self) -> int:
        """Stream from whose pool what a reduction makes comes."""
        return _REDUCTION_STREAM if self.config.overlap else DEFAULT_STREAM

    def __post_init__(self) -> None:
        self._mine = self.owned.parameters
        self._numel = {index: sum(part.numel for part in parts) for index, parts in self.slices.items()}

    def open(self, at: Point) -> None:
        """The bucket itself, at the first gradient."""
        if self._buffers:
            return
        size = nbytes(self.config.reduce_bucket, self.dtype)
        for _ in range(2 if self.config.overlap else 1):
            self._buffers.append(self.builder.alloc(at, size, Category.COMMUNICATION, "ZeRO reduce bucket"))

    def arrive(self, at: Point, parameter: int, holder: Pass, boundary: bool) -> None:
        """A gradient is ready: it moves into the bucket, or waits on its own when it is too large for it."""
        numel = self._numel[parameter]
        if self._elements + numel > self.config.reduce_bucket:
            self._reduce(at, boundary)
        if numel <= self.config.reduce_bucket:
            self.builder.free_gradient(at, holder, parameter)
        elif self.offload:
            # The safe copy of an oversized gradient takes its place.
            self.builder.transient(at, nbytes(numel, self.dtype), Category.GRADIENTS, "oversized gradient copy")
        self._held.append((parameter, holder))
        self._elements += numel

    def close(self, at: Point, boundary: bool) -> None:
        """End of a backward pass that reduces: the rest goes out and the bucket is given back."""
        self._reduce(at, boundary)
        if self.partition is not None:
            if self.kept is None:
                self.kept = self.partition
            else:
                self.builder.free(at, self.partition)
            self.partition = None
        for buffer in self._buffers:
            self.builder.free(at, buffer)
        for parameter, holder in self._late:
            self.builder.free_gradient(at, holder, parameter)
        self._buffers, self._late = [], []

    def _reduce(self, at: Point, boundary: bool) -> None:
        if not self._held:
            return
        self.reduced.append((self._elements, len(self._held)))
        parts = [part for parameter, _ in self._held for part in self.slices[parameter]]
        for elements in flatten_copies(parts, self.config.reduce_bucket):
            if elements:
                size = nbytes(elements, self.dtype)
                self.builder.transient(at, size, Category.COMMUNICATION, "flattened bucket", cuda_stream=self._pool)
        for parameter, holder in self._held:
            self._settle(at, parameter, holder, boundary)
        self._held, self._elements = [], 0

    def _settle(self, at: Point, parameter: int, holder: Pass, boundary: bool) -> None:
        """Where a reduced gradient goes."""
        mine = parameter in self._mine
        if mine and self.offload and boundary:
            self._to_host(at, parameter)
        elif mine and not self.offload and self.partition is None:
            size = nbytes(self.owned.touched, self.dtype)
            label = "gradients in partition"
            self.partition = self.builder.alloc(at, size, Category.GRADIENTS, label, cuda_stream=self._pool)
        if self._numel[parameter] <= self.config.reduce_bucket:
            return
        drops = (self.partitioned and not mine) or (mine and (not self.offload or boundary))
        if drops:
            self.builder.free_gradient(at, holder, parameter)
        else:
            self._late.append((parameter, holder))

    def _to_host(self, at: Point, parameter: int) -> None:
        """Norm in fp64, then the fp32 copy that travels (async_inplace_copy_grad_to_fp32_buffer_from_gpu)."""
        numel = max(part.numel for part in self.slices[parameter] if part.rank == self.owned.rank)
        builder, pool = self.builder, self._pool
        builder.transient(at, nbytes(numel, NORM), Category.TEMPORARY, "gradient norm in fp64", cuda_stream=pool)
        if self.dtype != MASTER:
            size, label = nbytes(numel, MASTER), "gradient in fp32 on its way to host"
            builder.transient(at, size, Category.TEMPORARY, label, cuda_stream=pool)
