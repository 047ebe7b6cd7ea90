"""FSDP2 with its shards in host memory: what a rank takes there, and what goes back and forth.

Mirrors torch/distributed/fsdp/_fully_shard (torch 2.13) under CPUOffloadPolicy(pin_memory=True), which accelerate
makes of fsdp_offload_params (utils/dataclasses.py: set_cpu_offload): _fsdp_param.py: _init_sharded_param pins each
shard, all_gather_inputs copies it to the device and casts it there; _fsdp_collectives.py: foreach_reduce copies each
reduced gradient to the host, which aten/src/ATen/native/TensorConversions.cpp: _to_copy pins.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpu_plan.planner.memory.optimizer.steps import LocalTensor, state_bytes
from gpu_plan.planner.memory.stream.builder import StreamBuilder
from gpu_plan.planner.memory.stream.moments import Point
from gpu_plan.planner.memory.stream.placing import Handle
from gpu_plan.planner.plain.values import dataclass
from gpu_plan.planner.speed.model import Collective, OptimizerWork, Phase
from gpu_plan.planner.strategy.optimizer_step import optimizer_work
from gpu_plan.planner.strategy.zero.common import pinned_bytes
from gpu_plan.planner.trace.events import Category
from gpu_plan.planner.workload.training import Optimizer

_COMMUNICATION = Category.COMMUNICATION
NOTE = "FSDP2 offloads with CPUOffloadPolicy: parameters, gradients and the optimizer's step are on the host"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShard:
    """One parameter's shard on its way to an all-gather."""

    stored: int
    """Bytes in host memory."""
    gathered: int
    """Bytes in the type in which it is gathered."""
    casts: bool
    """Whether those types differ."""


def copy_in(builder: StreamBuilder, at: Point, shards: Sequence[HostShard], unit: str, stream: int) -> list[Handle]:
    """The all-gather's inputs on the device, one after the other; a cast drops what it is made from."""
    inputs = []
    for shard in shards:
        copied = builder.alloc(at, shard.stored, _COMMUNICATION, "weight shard from host", unit, cuda_stream=stream)
        if shard.casts:
            cast = builder.alloc(at, shard.gathered, _COMMUNICATION, "all-gather input", unit, cuda_stream=stream)
            builder.free(at, copied)
            copied = cast
        inputs.append(copied)
    return inputs


def host_bytes(weights: Sequence[int], stepped: Sequence[LocalTensor], optimizer: Optimizer) -> int:
    """Pinned: shards of `weights` bytes and gradients, each in a block of its own. Pageable: the optimizer's state."""
    pinned = sum(pinned_bytes(size, True) for size in [*weights, *(tensor.nbytes for tensor in stepped)])
    return pinned + state_bytes(optimizer, stepped)


def host_optimizer_work(optimizer: Optimizer, elements: int, element_bytes: int, *, clipping: bool) -> OptimizerWork:
    """torch steps CPU tensors one by one: foreach is the default on accelerators only.

    torch/optim/optimizer.py: _default_to_fused_or_foreach.
    """
    traits = optimizer.traits
    work = optimizer_work(
        optimizer, elements, element_bytes, clipping=clipping, traffic=traits.cpu_traffic or traits.traffic
    )
    return replace(work, on_host=True)


def transfers(forward: Sequence[int], backward: Sequence[int], gradients: Sequence[int]) -> list[Collective]:
    """Copies of each unit's shards before its all-gathers, and of its reduced gradients; bytes by unit."""
    passes: tuple[tuple[Phase, Sequence[int]], ...] = (("forward", forward), ("backward", backward))
    fetched = [
        Collective(kind="host_to_device", bytes=size, phase=phase, per="micro_step", overlap=True)
        for phase, sizes in passes
        for size in sizes
    ]
    left = [
        Collective(kind="device_to_host", bytes=size, phase="backward", per="step", overlap=True) for size in gradients
    ]
    return [*fetched, *left]
