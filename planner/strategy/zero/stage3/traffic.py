"""What a rank of ZeRO-3 sends, and copies between device, host and NVMe: of a pass that follows the recorded order, and
of the step after it.
"""

from collections import Counter
from collections.abc import Mapping

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.model import Collective
from gpu_plan.planner.strategy.base import nbytes
from gpu_plan.planner.strategy.zero.common import MASTER, ZeroConfig
from gpu_plan.planner.strategy.zero.stage3.nvme import Nvme
from gpu_plan.planner.strategy.zero.stage3.partition import Partitions
from gpu_plan.planner.strategy.zero.stage3.storage import Gather

_READ, _WRITTEN = 4, 3
"""Tensors of a sub-group that a step reads (master, gradient, Adam's two) and writes (all but the gradient)."""


_SHAPES = 5
"""Views of every parameter that is gathered or reduced, counted in a run of DeepSpeed 0.19.8's own hooks
(tests/trace/test_hooks_issued.py), as everything in `gathering` and `reducing`."""


def gathering(parameters: int, ranks: int) -> tuple[int, int]:
    """Operators of one all-gather, fewest and most (partition_parameters.py: _all_gather_dtype and its handle).

    A buffer and the all-gather; of several parameters the parts of every rank are put together, one by one.
    """
    if parameters == 1:
        return 2, 2 + _SHAPES
    return 2 + parameters, 2 + parameters * (ranks + 1 + _SHAPES)


def reducing(gradients: int, ranks: int) -> tuple[int, int]:
    """The same of one reduce-scatter (stage3.py: __add_grad_to_ipg_bucket, partition_grads; coalesced_collectives.py:
    reduce_scatter_coalesced): a buffer and two copies of every gradient, and a view of it for every rank."""
    return 4 + 3 * gradients, 4 + gradients * (ranks + 5 + _SHAPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one micro step and one step moved."""

    parts: Partitions
    config: ZeroConfig
    dtype: str
    world_size: int
    gathers: Mapping[Gather, int]
    reduced: Mapping[tuple[int, int], int]
    """Reduce-scatters by their elements and gradients."""
    offload: bool
    weights_on_host: bool
    nvme: Nvme | None = None


def collectives(traffic: Traffic) -> tuple[Collective, ...]:
    """Everything, in the order of the step."""
    found = _between_devices(traffic)
    if traffic.offload:
        found += _with_host(traffic)
    if traffic.nvme is not None:
        found += _with_disk(traffic, traffic.nvme)
    return tuple(found)


def _between_devices(traffic: Traffic) -> list[Collective]:
    dtype, overlap = traffic.dtype, traffic.config.overlap
    found = [
        Collective(
            kind="all_gather",
            bytes=nbytes(gather.elements, dtype),
            count=count,
            phase="backward" if gather.backward else "forward",
            per="micro_step",
            overlap=gather.ahead and overlap,
            issued=gathering(gather.parameters, traffic.world_size),
        )
        for gather, count in traffic.gathers.items()
        if traffic.world_size > 1
    ]
    found += [
        Collective(
            kind="reduce_scatter",
            bytes=nbytes(elements, dtype),
            count=count,
            phase="backward",
            per="micro_step",
            overlap=overlap,
            issued=reducing(gradients, traffic.world_size),
        )
        for (elements, gradients), count in traffic.reduced.items()
    ]
    shares = Counter(traffic.parts.share[index] for index in traffic.parts.persistent)
    found += [
        Collective(
            kind="all_gather",
            bytes=nbytes(share * traffic.world_size, dtype),
            count=count,
            phase="step",
            per="step",
            overlap=False,
        )
        for share, count in sorted(shares.items())
    ]
    return found


def _weights_from_host(traffic: Traffic) -> list[Collective]:
    """Partitions copied over for every all-gather."""
    return [
        Collective(
            kind="host_to_device",
            bytes=nbytes(gather.elements // traffic.world_size, traffic.dtype),
            count=count,
            phase="backward" if gather.backward else "forward",
            per="micro_step",
            overlap=gather.ahead and traffic.config.overlap,
        )
        for gather, count in traffic.gathers.items()
    ]


def _with_host(traffic: Traffic) -> list[Collective]:
    parts, dtype = traffic.parts, traffic.dtype
    short, long = nbytes(parts.owned, dtype), nbytes(parts.owned, MASTER)
    updated = short
    found: list[Collective] = []
    if traffic.weights_on_host:
        # The step updates partitions where they lie; only those of persistent parameters are fetched after it.
        updated = nbytes(sum(parts.share[index] for index in parts.persistent), dtype)
        found = _weights_from_host(traffic)
    return [
        *found,
        Collective(kind="device_to_host", bytes=short, phase="backward", per="micro_step", overlap=True),
        Collective(kind="host_to_device", bytes=short, phase="backward", per="micro_step", overlap=True),
        Collective(kind="device_to_host", bytes=long, phase="backward", per="step", overlap=True),
        Collective(kind="host_to_device", bytes=updated, phase="step", per="step", overlap=False),
    ]


def _with_disk(traffic: Traffic, nvme: Nvme) -> list[Collective]:
    """Weights are read for their gathers; gradients are written in the last backward; a step reads and writes states.

    swap_tensor/partitioned_optimizer_swapper.py: swap_in_optimizer_state and swap_out_optimizer_state wait; reads of
    weights go on beside the computation where they are begun ahead (__prefetch_nvme_param_partitions).
    """
    parts = traffic.parts
    weights = nbytes(sum(parts.share[index] for index in nvme.swapped), traffic.dtype)
    updated = nbytes(sum(parts.share[index] for index in nvme.swapped & frozenset(parts.trainable)), traffic.dtype)
    gradients = sum(file.written for file in nvme.gradients if file is not None)
    states = nbytes(sum(parts.share[i] for i, file in enumerate(nvme.gradients) if file is not None), MASTER)
    return [
        Collective(kind="disk_to_host", bytes=weights, phase="forward", per="micro_step", overlap=True),
        Collective(kind="disk_to_host", bytes=weights, phase="backward", per="micro_step", overlap=True),
        Collective(kind="host_to_disk", bytes=gradients, phase="backward", per="step", overlap=False),
        Collective(kind="disk_to_host", bytes=_READ * states, phase="step", per="step", overlap=False),
        Collective(kind="host_to_disk", bytes=_WRITTEN * states + updated, phase="step", per="step", overlap=False),
    ]
