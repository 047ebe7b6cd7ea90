"""Device memory that torch's counters do not show: visible terms with intervals, never a hidden factor."""

from dataclasses import dataclass

from gpu_plan.planner.hardware.cluster import Cluster
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
_PCIE_CHANNELS = 2
_MAX_CHANNELS = 32
# NCCL 2.30 nvls.cc: ncclNvlsBufferSetup, 8 GPUs, 16 channels, 2 × 8 chunks of 128 KiB.
_NVLS_BYTES = 256 * MIB
# github.com/NVIDIA/nccl/issues/964: 4 A100 with NVLink, one all-reduce per group.
_MEASURED_PAIR, _MEASURED_GROUP = 544 * MIB, 688 * MIB


def nccl(cluster: Cluster) -> Term:
    """Buffers of the one communicator that data parallelism opens, outside the caching allocator."""
    if cluster.world_size == 1 or cluster.gpu.is_cpu:
        return Term(name="NCCL", low=0, expected=0, high=0, basis="source", source="one process, or no GPU")
    has_nvlink = "nvlink" in cluster.intra_node_link.lower()
    capability = cluster.gpu.compute_capability or (0, 0)
    channels = _NVLINK_CHANNELS.get(capability, _OTHER_NVLINK_CHANNELS) if has_nvlink else _PCIE_CHANNELS
    nvls = _NVLS_BYTES if has_nvlink and capability >= (9, 0) and cluster.gpus_per_node >= 4 else 0
    # A ring sends to one neighbour and receives from the other; trees use both both ways. Of two GPUs each is both.
    connections = 1 if cluster.world_size == 2 else 2
    expected = connections * channels * _BYTES_PER_CONNECTION + nvls
    measured = _MEASURED_PAIR if cluster.world_size == 2 else _MEASURED_GROUP
    return Term(
        name="NCCL",
        low=_PCIE_CHANNELS * _BYTES_PER_CONNECTION,
        expected=expected,
        high=max(expected, measured, connections * _MAX_CHANNELS * _BYTES_PER_CONNECTION + nvls),
        basis="source",
        source="NCCL transport/p2p.cc, graph/connect.cc and nvls.cc; the number of channels is NCCL's choice at run"
        " time; high end no less than measured on 4 A100 (github.com/NVIDIA/nccl/issues/964)",
    )


def cached_blocks(expected: int, other_order: int, room: int, *, pressed: bool) -> Term:
    """What the caching allocator keeps beyond what is allocated at the peak, from its simulation; all in bytes.

    `expected` and `other_order` are the simulated peaks less what is allocated where the driver hands out rising and
    falling addresses; `room` is what the device has beside the tensors. What a run keeps follows from its history of
    allocations, and that is known, but for this order, which decides between equal blocks. A run that is `pressed`
    gives cached memory back and takes it again: what a device then shows when it is sampled lies anywhere between.
    """
    low, high = (0, max(room, expected)) if pressed else sorted((expected, other_order))
    return Term(
        name="cached blocks",
        low=low,
        expected=expected,
        high=min(high, max(room, expected)),
        basis="source",
        source="c10/cuda/CUDACachingAllocator.cpp, simulated"
        + (" under the real capacity: cached memory comes and goes" if pressed else " for both orders of addresses"),
    )
