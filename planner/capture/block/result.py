"""What a block takes of a GPU: figures as torch's counters would give them, and what stands behind them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gpu_plan.planner.capture.block.stream import MICRO_BATCH
from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.memory.allocator.replay import simulate
from gpu_plan.planner.memory.allocator.settings import IntArray
from gpu_plan.planner.memory.overheads import cuda_context
from gpu_plan.planner.memory.profile import StandingTensor, alive_at, describe, measure
from gpu_plan.planner.memory.stream.moments import Phase
from gpu_plan.planner.memory.stream.rank import RankStream


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts:
    """What ran inside the block."""

    models: tuple[str, ...]
    """Class names of the models that were called."""
    optimizers: tuple[str, ...]
    forward_passes: int
    backward_passes: int
    steps: int
    host_reads: tuple[str, ...]
    """Each value that the block read of a tensor, with what it was told and what that assumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMemory:
    """Figures of one GPU, in bytes."""

    gpu: str
    capacity_bytes: int
    peak_allocated_bytes: int
    """`torch.cuda.max_memory_allocated()` at the end of the block."""
    peak_reserved_bytes: int
    """`torch.cuda.max_memory_reserved()` there."""
    context_bytes: int
    """CUDA's own context beside the allocator, as expected."""
    at_end_bytes: int
    """Still allocated when the block ends."""
    fits: bool
    """Whether the block runs to its end on the GPU, cached memory given back under pressure."""
    phase_of_peak: str
    at_peak: Mapping[str, int]
    """By category; sums to `peak_allocated_bytes`."""
    phase_peaks: Mapping[str, int]
    """Most that stands in each phase: load, forward, backward, optimizer step."""
    tensors: tuple[StandingTensor, ...]
    """All that stands at the peak, largest first."""
    facts: BlockFacts

    @property
    def device_used_bytes(self) -> int:
        """What nvidia-smi would show at most."""
        return self.peak_reserved_bytes + self.context_bytes


def block_memory(stream: RankStream, names: Mapping[int, str], cluster: Cluster, facts: BlockFacts) -> BlockMemory:
    """Replays the block through the simulated caching allocator; `names` are those of storages that have one."""
    context = cuda_context(cluster)
    free = simulate(stream, MICRO_BATCH)
    blocks = free.block_bytes(len(stream.fixed))
    profile = measure(stream, MICRO_BATCH, blocks)
    capacity = cluster.capacity_bytes
    fits = free.peak_reserved_bytes + context.high <= capacity
    if not fits:
        fits = simulate(stream, MICRO_BATCH, capacity=capacity - context.high).oom_at is None
    return BlockMemory(
        gpu=cluster.gpu.short,
        capacity_bytes=capacity,
        peak_allocated_bytes=free.peak_allocated_bytes,
        peak_reserved_bytes=free.peak_reserved_bytes,
        context_bytes=context.expected,
        at_end_bytes=int(free.allocated[-1]) if len(free.allocated) else 0,
        fits=fits,
        phase_of_peak=str(profile.phase_of_peak),
        at_peak={str(category): size for category, size in profile.at_peak.items()},
        phase_peaks={str(phase): profile.phase_peaks[phase] for phase in _phases(facts)},
        tensors=_standing(stream, blocks, free.peak_allocated_at, names),
        facts=facts,
    )


def _phases(facts: BlockFacts) -> list[Phase]:
    """Those that the block has."""
    there = {
        Phase.LOAD: 1,
        Phase.FORWARD: facts.forward_passes,
        Phase.BACKWARD: facts.backward_passes,
        Phase.STEP: facts.steps,
    }
    return [phase for phase, count in there.items() if count]


def _standing(stream: RankStream, blocks: IntArray, peak: int, names: Mapping[int, str]) -> tuple[StandingTensor, ...]:
    if peak < 0:
        return ()
    charged = blocks * alive_at(stream, peak)
    found = []
    for tensor in np.argsort(-charged, kind="stable").tolist():
        if not charged[tensor]:
            break
        told = describe(stream, tensor, int(charged[tensor]), MICRO_BATCH)
        found.append(replace(told, module=names.get(tensor, told.module)))
    return tuple(found)
