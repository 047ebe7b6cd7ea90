"""ZeRO-3 with optimizer state and parameters on NVMe: what goes to disk, what stays on the host, in which buffers.

Mirrors deepspeed/runtime/zero/stage3.py (_create_param_groups_fp16_flat_cpu_memory,
_create_fp16_partitions_with_defragmentation, _configure_tensor_swapping, _swappable_optimizer_subgroup),
partition_parameters.py: _partition_param, and runtime/swap_tensor (partitioned_param_swapper.py,
partitioned_optimizer_swapper.py, optimizer_utils.py, utils.py: SwapBufferManager). Nothing here is about the device;
`deepspeed_swap` says which partitions are in memory when.
"""

from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.strategy.base import RankContext, nbytes
from gpu_plan.planner.strategy.zero.common import MASTER, ZeroConfig, optimizer_groups, pinned_bytes
from gpu_plan.planner.strategy.zero.stage3.partition import Partitions
from gpu_plan.planner.units import format_bytes
from gpu_plan.planner.workload.training import NVME_PATH

_LEAST = 2**20
"""Bytes from which on a tensor is worth a file (swap_tensor/utils.py: MIN_AIO_BYTES; aio's block_size is as large)."""
_ALIGNED = 1024
"""Multiple of bytes that is read and written (AIO_ALIGNED_BYTES with one thread to a request)."""
PARAMETER_BUFFERS = 5
"""offload_config.py: DeepSpeedZeroOffloadParamConfig.buffer_count."""
_BUFFER_ELEMENTS = 100_000_000
SWAP_DEFAULTS = {
    "zero.param_buffer_count": str(PARAMETER_BUFFERS),
    "zero.param_buffer_size": str(_BUFFER_ELEMENTS),
}
"""DeepSpeed's own values of what may be chosen for a run."""
_MOST_IN_RAM = 1_000_000_000
_OPTIMIZER_BUFFERS = 4
_STATES = 2
"""exp_avg and exp_avg_sq of Adam, the one optimizer that is offloaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFile:
    """What the last micro step does with one parameter's fp32 gradient partition; bytes."""

    written: int
    """To a file."""
    stays: bool
    """Whether a rest that is too small for a file keeps the whole partition on the device until the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvme:
    """One rank's layout."""

    swapped: frozenset[int]
    """Parameters whose partitions are read from NVMe for every gather."""
    buffer_elements: int
    """Of one of the buffers for parameters; 0 where parameters stay off NVMe."""
    gradients: tuple[GradientFile | None, ...]
    """By parameter; None where the gradient goes to pinned memory instead."""
    disk_bytes: int
    """Of all swap files."""
    host_bytes: int
    """Without the buffers for parameters, whose number the order of modules decides."""
    reserve_bytes: int
    """Of `host_bytes`: what is held in the first step alone, while Adam makes its state in pageable memory."""

    def buffers_bytes(self, count: int, dtype: str) -> int:
        """Of `count` buffers for parameters; page-locked exactly, without a power of two."""
        return count * _aligned(nbytes(self.buffer_elements, dtype))


def nvme_layout(context: RankContext, config: ZeroConfig, parts: Partitions, dtype: str) -> Nvme:
    """What one rank keeps where."""
    device = context.setting("zero.offload_param", "nvme")
    on_nvme, on_host = device == "nvme", device != "none"
    files = frozenset(i for i, share in enumerate(parts.share) if on_nvme and nbytes(share, dtype) >= _LEAST)
    flat, in_ram = flat_buffers(context, parts)
    kept = frozenset(index for group, stays in zip(parts.sub_groups, in_ram, strict=True) if stays for index in group)
    swapped = files - kept
    written = sum(_aligned(nbytes(parts.share[index], dtype)) for index in files)
    written += sum(_aligned(nbytes(parts.share[index], dtype)) for index in files & _tied(context))
    gradients = _gradients(parts)
    disk, host, first = _optimizer(context, config, parts, dtype)
    if on_host:
        host += sum(pinned_bytes(nbytes(size, dtype), True) for size in flat)
        host += _apart(parts, dtype, files, kept if not config.pin_memory else frozenset(), config.pin_memory)
    if not all(in_ram):
        # reserve_partitioned_swap_space is given whole parameters' elements, not partitions' (`t.ds_numel`).
        largest = max(parts.sub_groups, key=parts.sub_group_share)
        host += sum(_aligned(nbytes(parts.numel[index], dtype)) for index in largest)
    return Nvme(
        swapped=swapped,
        buffer_elements=_buffer_elements(context, parts, files) if on_nvme else 0,
        gradients=gradients,
        disk_bytes=written + disk + sum(file.written for file in gradients if file is not None),
        host_bytes=host + first,
        reserve_bytes=first,
    )


def too_small(context: RankContext, parts: Partitions, dtype: str) -> str | None:
    """Why parameters do not fit into the buffers that were asked for; DeepSpeed asserts it (get_buffer)."""
    given = dict(context.settings).get("zero.param_buffer_size")
    if given is None or context.setting("zero.offload_param", "nvme") != "nvme":
        return None
    largest = max((share for share in parts.share if nbytes(share, dtype) >= _LEAST), default=0)
    if largest <= int(given):
        return None
    return f"zero.param_buffer_size={given} is less than the largest partition of a parameter, {largest} elements"


def nvme_notes(context: RankContext, nvme: Nvme, buffers: int) -> tuple[str, ...]:
    """What the run needs of each node, and what was chosen for it."""
    path = context.setting("zero.nvme_path", NVME_PATH)
    need = format_bytes(nvme.disk_bytes * -(-context.world_size // context.nodes))
    said = [f"{path} of each node needs {need} free for swap files; a saved checkpoint takes as much again"]
    if buffers > PARAMETER_BUFFERS and "zero.param_buffer_count" not in dict(context.settings):
        said.append(
            f"offload_param.buffer_count is {buffers}: with DeepSpeed's default of {PARAMETER_BUFFERS} this run"
            " would end for lack of buffers"
        )
    if context.setting("zero.prefetch_bucket_size", "") == "0":
        said.append("stage3_prefetch_bucket_size is 0: weights are read from files when they are needed, not ahead")
    if nvme.buffer_elements > _BUFFER_ELEMENTS and "zero.param_buffer_size" not in dict(context.settings):
        said.append(f"offload_param.buffer_size is {nvme.buffer_elements}: DeepSpeed's 1e8 holds no whole partition")
    return tuple(said)


def _tied(context: RankContext) -> frozenset[int]:
    """The input embedding, where the output shares it.

    zero.Init partitions what the output's module makes for itself as well; tying drops the parameter, not its file.
    """
    layout, parameters = context.trace.layout, context.trace.parameters
    if not layout.output_embedding or any(p.module == layout.output_embedding for p in parameters):
        return frozenset()
    return frozenset(i for i, p in enumerate(parameters) if p.module == layout.input_embedding)


def _buffer_elements(context: RankContext, parts: Partitions, files: frozenset[int]) -> int:
    """DeepSpeed's own size, or that of the largest partition, without which the run would end at once."""
    largest = max((parts.share[index] for index in files), default=0)
    return int(context.setting("zero.param_buffer_size", str(max(_BUFFER_ELEMENTS, largest))))


def flat_buffers(context: RankContext, parts: Partitions) -> tuple[list[int], list[bool]]:
    """Elements of each group's buffer in RAM, and of each sub-group whether it has its place there."""
    on_nvme = context.setting("zero.offload_param", "nvme") == "nvme"
    most = int(float(context.setting("zero.max_in_cpu", str(_MOST_IN_RAM))))
    sub_groups = iter(parts.sub_groups)
    flat, in_ram, taken = [], [], 0
    for group in optimizer_groups(context):
        whole = parts.sub_group_share(group)
        room = max(0, most - taken) if on_nvme and taken + whole > most else whole
        taken += whole
        flat.append(room)
        offset = 0
        while offset < whole:
            offset += parts.sub_group_share(next(sub_groups))
            in_ram.append(offset <= room)
    return flat, in_ram


def _gradients(parts: Partitions) -> tuple[GradientFile | None, ...]:
    """optimizer_utils.py: _adjust_for_misaligned_lengths cuts off what is not aligned; small pieces get no file."""
    found: list[GradientFile | None] = [None] * len(parts.share)
    for group in parts.sub_groups:
        if nbytes(parts.sub_group_share(group), MASTER) < _LEAST:
            continue
        for index in group:
            size = nbytes(parts.share[index], MASTER)
            whole = size - size % _ALIGNED if size >= _LEAST else 0
            written = whole if whole >= _LEAST else 0
            found[index] = GradientFile(written=written, stays=written < size)
    return tuple(found)


def _optimizer(context: RankContext, config: ZeroConfig, parts: Partitions, dtype: str) -> tuple[int, int, int]:
    """Bytes on disk, bytes of the host that stay, and those of Adam's new state in the first step.

    Sub-groups below a MiB keep everything in RAM. The others pass through buffers as large as the largest one; what
    Adam makes in its first step is pageable until it was written.
    """
    sizes = [nbytes(parts.sub_group_share(group), MASTER) for group in parts.sub_groups]
    small = [size for size in sizes if size < _LEAST]
    large = [size for size in sizes if size >= _LEAST]
    count = int(context.setting("zero.optimizer_buffer_count", str(_OPTIMIZER_BUFFERS)))
    kept = sum((1 + _STATES) * size + pinned_bytes(size, config.pin_memory) for size in small)
    buffers = count * _aligned(max(sizes))
    gradients = pinned_bytes(nbytes(parts.owned, dtype), config.pin_memory)
    return (1 + _STATES) * sum(map(_aligned, large)), kept + buffers + gradients, _STATES * max(large, default=0)


def _apart(parts: Partitions, dtype: str, files: frozenset[int], moved: frozenset[int], pinned: bool) -> int:
    """Partitions without a file, made one by one; what moves on leaves its pinned block to torch's cache."""
    sizes = (nbytes(share, dtype) for i, share in enumerate(parts.share) if i not in files and i not in moved)
    return sum(pinned_bytes(size, pinned) for size in sizes)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
