"""Device memory that torch's counters do not show: visible terms with intervals, never a hidden factor."""

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Bytes known within bounds, with what they rest on."""

    name: str
    low: int
    expected: int
    high: int
    basis: str
    """`source`, `measured` or `assumed`."""
    source: str


def cuda_context(cluster: Cluster) -> Term:
    """The driver's context and the loaded kernels of one process."""
    interval = cluster.gpu.context
    return Term(
        name="CUDA context",
        low=interval.low,
        expected=interval.expected,
        high=interval.high,
        basis=interval.basis,
        source=cluster.gpu.source_of("context"),
    )


# NCCL 2.20 to 2.30 transport/p2p.cc: 10 MiB receive and 2 MiB send buffers per channel and neighbour, or 6 and 6.
_BYTES_PER_CONNECTION = 12 * MIB
# graph/connect.cc: ncclTopoPostset doubles the channels found: one per NVLink of an A100 (12), 8 elsewhere.
_NVLINK_CHANNELS = {(8, 0): 24}
_OTHER_NVLINK_CHANNELS = 16
# One ring found, and doubled.
_PCIE_CHANNELS = 2
_MAX_CHANNELS = 32
# NCCL 2.30 nvls.cc: ncclNvlsBufferSetup, 8 GPUs, 16 channels, 2 × 8 chunks of 128 KiB.
_NVLS_BYTES = 256 * MIB
# graph/connect.cc: a ring's two neighbours, and in a tree one above and up to two below, which may be others.
_RING_NEIGHBOURS, _MOST_NEIGHBOURS = 2, 5
# What stands on the device of libnccl.so.2 by the major capability, least and most in MiB: sections that are loaded
# (SHF_ALLOC) of its device code in the published wheels 2.14.3, 2.18.1, 2.19.3, 2.20.5, 2.21.5, 2.26.2, 2.27.5 and
# 2.28.9. Every kernel calls through one table of functions (device/common.h: ncclDevFuncTable): none is left out.
_CODE_MIB = {5: (29, 39), 6: (28, 38), 7: (41, 55), 8: (41, 55), 9: (60, 97), 10: (92, 94), 12: (82, 84)}
_UNKNOWN_CODE_MIB = (28, 97)
# github.com/NVIDIA/nccl/issues/964, August 2023: a pair of A100 with NVLink takes 544 MiB, of which its connections are
# 288; the first of four takes 688, of which those of the end of a chain are 432. The rest is 256 in both: NCCL's
# kernels, its queues and what the driver keeps for them. Of which version is not said: 2.14 (47 MiB of code) or 2.18.
_MEASURED, _BESIDE_MIB, _ITS_CODE_MIB = (8, 0), 256, (47, 55)
NCCL_VERSION = (2, 30)
"""Whose buffers are counted, unless a run is known to have had an older one."""
_CONNECTS_ON_USE = (2, 22)
"""init.cc: RUNTIME_CONNECT; before it rings and trees are connected with the communicator."""


def nccl(cluster: Cluster, version: tuple[int, int] = NCCL_VERSION) -> Term:
    """Buffers of the one communicator that data parallelism opens, outside the caching allocator.

    The low end is the ring, with trees over the same neighbours where they are connected unasked (over two channels
    where an NVLink may be missing); the high end has trees over others, as many as a node holds. Beside connections
    stands what was measured on an A100, corrected by how NCCL's code has grown; elsewhere that code is the least.
    """
    if cluster.world_size == 1 or cluster.gpu.is_cpu:
        return Term(name="NCCL", low=0, expected=0, high=0, basis="source", source="one process, or no GPU")
    has_nvlink = "nvlink" in cluster.intra_node_link.lower()
    capability = cluster.gpu.compute_capability or (0, 0)
    found = _NVLINK_CHANNELS.get(capability, _OTHER_NVLINK_CHANNELS) if has_nvlink else _PCIE_CHANNELS
    nvls = _NVLS_BYTES if has_nvlink and capability >= (9, 0) and cluster.gpus_per_node >= 4 else 0
    # SXM modules are always joined; a bridge that the catalog knows of a card need not be there.
    certain = found if "nvswitch" in cluster.intra_node_link.lower() else _PCIE_CHANNELS
    others = cluster.world_size - 1
    ring = min(others, _RING_NEIGHBOURS) * _BYTES_PER_CONNECTION
    unasked = ring if version < _CONNECTS_ON_USE else _BYTES_PER_CONNECTION
    most = min(others, _MOST_NEIGHBOURS) * (found if has_nvlink else _MAX_CHANNELS) * _BYTES_PER_CONNECTION
    least_beside, beside, most_beside = _beside_connections(capability)
    return Term(
        name="NCCL",
        low=unasked * certain + least_beside,
        expected=ring * found + nvls + beside,
        high=most + nvls + most_beside,
        basis="source",
        source="NCCL transport/p2p.cc, graph/connect.cc, nvls.cc and init.cc; channels and trees are NCCL's choice at"
        " run time; beside connections as measured on A100 (github.com/NVIDIA/nccl/issues/964), and its code",
    )


def _beside_connections(capability: tuple[int, int]) -> tuple[int, int, int]:
    """Least, expected and most bytes: the measured ones of another version, or the code alone."""
    least, most = _CODE_MIB.get(capability[0], _UNKNOWN_CODE_MIB)
    high = max(_BESIDE_MIB, _BESIDE_MIB + most - _ITS_CODE_MIB[0])
    if capability != _MEASURED:
        return least * MIB, least * MIB, high * MIB
    return (_BESIDE_MIB + least - _ITS_CODE_MIB[1]) * MIB, _BESIDE_MIB * MIB, high * MIB


def cached_blocks(expected: int, low: int, high: int, room: int, *, pressed: bool) -> Term:
    """What the caching allocator keeps beyond what is allocated at the peak, from its simulation; all in bytes.

    What a run keeps follows from its history of allocations, and that is known but for two things: the order in which
    the driver hands out addresses, which decides between equal blocks, and how far the host runs ahead of the device,
    which decides when blocks that another stream uses come back. `low` and `high` are the least and the most over
    both; `room` is what the device has beside the tensors, where the allocator waits for the device instead. A run that
    is `pressed` gives cached memory back and takes it again: the two are then what it settles at, and `expected`, which
    it would have kept on a larger device, is no more than that.
    """
    # Where every schedule keeps more than there is room for, the allocator waits for the device in each.
    least = max(low if pressed else min(low, max(room, expected)), 0)
    most = max(high, least) if pressed else min(high, max(room, expected))
    return Term(
        name="cached blocks",
        low=least,
        expected=max(least, min(expected, most)),
        high=most,
        basis="source",
        source="c10/cuda/CUDACachingAllocator.cpp, simulated "
        + (
            "under the real capacity: what stays once cached memory has been given back"
            if pressed
            else "for both orders of addresses, with the host waiting at once and running ahead"
        ),
    )
