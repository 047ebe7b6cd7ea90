"""One model's modules over the GPUs of a node, its RAM and its disk: the map that the solver finds, judged exactly."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpu_plan.planner.hardware.cluster import Cluster
from gpu_plan.planner.hardware.disk import NVME_BYTES_PER_S
from gpu_plan.planner.model.spec import ModelSpec
from gpu_plan.planner.plan.inference import DevicePlacement, Placement
from gpu_plan.planner.search import device_map as maps
from gpu_plan.planner.search.device_map.devices import devices_of
from gpu_plan.planner.search.device_map.modules import ModuleSize, TensorSize, modules_of_tensors, problem_of
from gpu_plan.planner.strategy.generation.stream import cache_at_full_context
from gpu_plan.planner.strategy.generation.view import unit_of
from gpu_plan.planner.trace.events import CATEGORY_INDEX, Category, Kind, StepTrace
from gpu_plan.planner.trace.generation.passes import Cut
from gpu_plan.planner.units import GIB

OWN_RAM = 2 * GIB
"""Of the host's RAM, what the process takes for itself: the interpreter, torch, pages of files being read."""
SOLVER_SECONDS = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A map and what it says of each unit."""

    found: maps.Placement
    devices: tuple[str, ...]
    """Names of the devices that compute, by index: `cuda:0`, or `cpu` where there is no GPU."""

    @property
    def runs_on(self) -> dict[str, int]:
        """Index of the device on which each unit runs."""
        main = self.index(self.found.main_device)
        return {
            unit: self.index(place) if self.word(place) in self.devices else main
            for unit, place in self.found.device_map.items()
        }

    def word(self, place: int | str) -> str:
        """`cuda:0` for 0."""
        return f"cuda:{place}" if isinstance(place, int) else place

    def index(self, place: int | str) -> int:
        """Of a device that computes."""
        return self.devices.index(self.word(place))

    def place_of(self, parameter: str) -> str:
        """Where a parameter stands."""
        unit = unit_of(parameter, self.found.device_map)
        return self.word(self.found.main_device if unit is None else self.found.device_map[unit])


def find_map(
    spec: ModelSpec,
    trace: StepTrace,
    last: Cut,
    cluster: Cluster,
    *,
    free_bytes: int,
    offload: bool,
    sizes: Mapping[str, int],
) -> Mapped:
    """The best map for `free_bytes` on each device that computes. InputError where none fits.

    `last`: the decode step at full context, whose cache says what each unit keeps. `sizes`: bytes by parameter name.
    """
    is_cpu = cluster.gpu.is_cpu
    budgets: dict[int | str, int | str | None] = {}
    if is_cpu:
        budgets["cpu"] = free_bytes
    else:
        budgets = dict.fromkeys(range(cluster.gpus_per_node), free_bytes)
        if offload:
            ram = cluster.host_ram_bytes
            budgets["cpu"] = None if ram is None else max(0, ram - OWN_RAM)
    if offload:
        budgets["disk"] = None
    problem = problem_of(
        _modules(spec, trace, sizes),
        devices_of(
            budgets,
            memory_bytes_per_s=cluster.gpu.bandwidth_bytes_per_s,
            link_bytes_per_s=cluster.host_link_bytes_per_s,
            disk_bytes_per_s=NVME_BYTES_PER_S,
        ),
        no_split=set(trace.layout.block_classes),
        state_bytes=_state_bytes(trace, last),
        streaming="module",
        peer_bytes_per_s=cluster.intra_node_bytes_per_s,
    )
    names = ("cpu",) if is_cpu else tuple(f"cuda:{index}" for index in range(cluster.gpus_per_node))
    return Mapped(found=maps.solve(problem, limit_seconds=SOLVER_SECONDS), devices=names)


def activation_bytes(part: Cut) -> int:
    """Most that stands at once in these passes beside weights and cache: what every device must keep free."""
    trace = part.trace
    sizes = np.where(trace.category == CATEGORY_INDEX[Category.KV_CACHE], 0, trace.bytes_fixed + trace.bytes_per_sample)
    kind, subject = trace.kind[part.first : part.end], trace.subject[part.first : part.end]
    storage = (kind == Kind.ALLOC) | (kind == Kind.FREE)
    changes = sizes[np.where(storage, subject, 0)] * np.where(kind == Kind.ALLOC, 1, -1)
    standing = int(sizes[part.incoming].sum())
    return standing + int(np.cumsum(np.where(storage, changes, 0)).max(initial=0))


def placement_of(mapped: Mapped, figures: tuple[DevicePlacement, ...]) -> Placement:
    """The map as the plan document has it."""
    found = mapped.found
    return Placement(
        device_map={unit: mapped.word(place) for unit, place in found.device_map.items()},
        devices=figures,
        main_device=mapped.word(found.main_device),
        boundaries=found.cost.boundaries,
        moved_bytes_per_step=found.streamed_bytes,
        optimal=found.optimal,
    )


def _modules(spec: ModelSpec, trace: StepTrace, sizes: Mapping[str, int]) -> tuple[ModuleSize, ...]:
    shared = {parameter.tied_to for parameter in spec.parameters if parameter.tied_to}
    tensors = [
        TensorSize(
            name=parameter.name,
            num_bytes=sizes[parameter.tied_to or parameter.name],
            tied_to=parameter.tied_to or (parameter.name if parameter.name in shared else None),
        )
        for parameter in spec.parameters
    ]
    tensors += [TensorSize(name=name, num_bytes=size, buffer=True) for name, size in trace.buffer_bytes]
    classes = dict(zip(trace.layout.blocks, trace.layout.block_classes, strict=True))
    return modules_of_tensors(tensors, classes)


def _state_bytes(trace: StepTrace, last: Cut) -> dict[str, int]:
    """What each module keeps between steps at full context."""
    sizes = last.trace.bytes_fixed + last.trace.bytes_per_sample
    kept: dict[str, int] = {}
    for tensor in cache_at_full_context(last).tolist():
        module = _holder(last.trace.modules[int(last.trace.tensor_module[tensor])], trace)
        kept[module] = kept.get(module, 0) + int(sizes[tensor])
    return kept


def _holder(module: str, trace: StepTrace) -> str:
    """The block that a module is in, or itself."""
    blocks = dict.fromkeys(trace.layout.blocks)
    return unit_of(module, blocks) or module
