"""What a caching allocator reserves at least, whatever its segments: blocks never leave their stream's pool."""

import numpy as np

from gpu_plan.planner.memory.allocator.settings import SMALL_LIMIT, IntArray


def least_reserved(event_sign: IntArray, event_tensor: IntArray, sizes: IntArray, cuda_stream: IntArray) -> int:
    """Bytes reserved at least on a device without limit: the most that each pool ever holds, one for each stream and
    kind of block, however far apart those moments are. `sizes` are those that blocks have [storages].

    pytorch c10/cuda/CUDACachingAllocator.cpp: get_free_block searches the pool of the request's own stream alone, and
    segments go back to the driver only where memory ends.
    """
    pools = (2 * cuda_stream + (sizes <= SMALL_LIMIT))[event_tensor]
    changes = event_sign * sizes[event_tensor]
    return sum(int(np.cumsum(changes[pools == pool]).max(initial=0)) for pool in np.flatnonzero(np.bincount(pools)))
