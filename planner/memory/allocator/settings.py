"""Settings of CUDA's caching allocator and the size rules that follow from them.

Sizes and rules as in pytorch c10/core/AllocatorConfig.h, c10/core/AllocatorConfig.cpp (parse*) and
c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split).
"""

import numpy as np
from numpy.typing import NDArray

from gpu_plan.planner.errors import InputError
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import MIB, round_up

IntArray = NDArray[np.int64]

MIN_BLOCK = 512
"""kMinBlockSize: granularity of blocks."""
SMALL_LIMIT = MIB
"""kSmallSize: the largest rounded request of the small pool, and the largest remainder a large block may waste."""
SMALL_SEGMENT = 2 * MIB
"""kSmallBuffer: what the small pool asks of the driver."""
MIN_LARGE = 10 * MIB
"""kMinLargeAlloc: requests from here on get a segment of their own size."""
LARGE_ROUNDING = 2 * MIB
"""kRoundLarge: multiple of such a segment."""
NUM_INTERVALS = 16
"""kRoundUpPowerOfTwoIntervals: powers of two from 1 MiB to 64 GiB with a rounding of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """What `PYTORCH_ALLOC_CONF` and `torch.cuda.set_per_process_memory_fraction` set; the defaults are torch's.

    Raises InputError for values that torch refuses.
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    """Bytes; blocks from this size on are neither split nor given to smaller requests. None: no limit."""
    max_non_split_rounding_size: int | None = None
    """Bytes by which a block that may not be split can exceed the request; None: 20 MiB."""
    roundup_power2_divisions: int | tuple[int, ...] = 0
    """Steps inside a power of two: one number, or one for each of the 16 intervals from 1 MiB on. 0 or 1: off."""
    garbage_collection_threshold: float = 0.0
    """Share of `process_limit` above which cached blocks are given back; 0: off. Without a limit torch ignores it."""
    large_segment_size: int = 20 * MIB
    """Bytes of a segment for requests below 10 MiB, and of a page of a large expandable segment."""
    process_limit: int | None = None
    """Bytes that set_per_process_memory_fraction allows; None: not called."""

    def __post_init__(self) -> None:
        if self.large_segment_size <= MIN_LARGE or self.large_segment_size % MIB:
            raise InputError("alloc.large_segment_size must be whole MiB above 10 MiB")
        for name in ("max_split_size", "max_non_split_rounding_size"):
            value = getattr(self, name)
            if value is not None and value < self.large_segment_size:
                raise InputError(
                    f"alloc.{name} must be at least the large segment size, {self.large_segment_size} bytes"
                )
        if not 0 <= self.garbage_collection_threshold < 1:
            raise InputError("alloc.garbage_collection_threshold must be at least 0 and below 1")
        if isinstance(self.roundup_power2_divisions, tuple) and len(self.roundup_power2_divisions) != NUM_INTERVALS:
            raise InputError(f"alloc.roundup_power2_divisions needs one number, or {NUM_INTERVALS} of them")
        if any(steps < 0 or steps & (steps - 1) for steps in self.divisions):
            raise InputError("alloc.roundup_power2_divisions must be powers of two, or 0")
        if self.process_limit is not None and self.process_limit < 0:
            raise InputError("alloc.process_limit must not be negative")

    @property
    def non_split_rounding(self) -> int:
        """`max_non_split_rounding_size` with torch's default, which does not follow the large segment size."""
        given = self.max_non_split_rounding_size
        return 20 * MIB if given is None else given

    @property
    def divisions(self) -> tuple[int, ...]:
        """Steps for each of the 16 intervals."""
        steps = self.roundup_power2_divisions
        return steps if isinstance(steps, tuple) else (steps,) * NUM_INTERVALS

    @property
    def collects_garbage(self) -> bool:
        """Whether cached blocks age and are given back before the limit is reached."""
        return self.garbage_collection_threshold > 0 and self.process_limit is not None

    @property
    def bends_nothing(self) -> bool:
        """Whether every request takes the smallest free block that is large enough, or one that grows least."""
        return self.max_split_size is None and not self.collects_garbage

    def page(self, small: bool) -> int:
        """Bytes of a page of an expandable segment."""
        return SMALL_SEGMENT if small else self.large_segment_size

    def round_size(self, nbytes: int) -> int:
        """Bytes that a request asks of the pool (round_size); 0 bytes ask nothing."""
        if nbytes <= 0:
            return 0
        interval = min(max(nbytes.bit_length() - MIB.bit_length(), 0), NUM_INTERVALS - 1)
        steps = self.divisions[interval]
        if steps > 1 and nbytes > MIN_BLOCK * steps:
            return round_up(nbytes, (1 << (nbytes.bit_length() - 1)) // steps)
        return round_up(nbytes, MIN_BLOCK)

    def round_sizes(self, nbytes: IntArray) -> IntArray:
        """`round_size` of every element."""
        if not any(steps > 1 for steps in self.divisions):
            rounded: IntArray = np.maximum((nbytes + (MIN_BLOCK - 1)) & -MIN_BLOCK, 0)
            return rounded
        distinct, inverse = np.unique(nbytes, return_inverse=True)
        return np.asarray([self.round_size(int(size)) for size in distinct], dtype=np.int64)[inverse]

    def segment_size(self, size: int) -> int:
        """Bytes asked of the driver for a rounded request that no cached block serves (get_allocation_size)."""
        if size <= SMALL_LIMIT:
            return SMALL_SEGMENT
        if size < MIN_LARGE:
            return self.large_segment_size
        return round_up(size, LARGE_ROUNDING)
