"""What is said about one candidate: its strategy, the memory of its worst rank, its speed, its tensors.

Every class checks its own arithmetic and raises ValueError where figures contradict each other.
"""

import math
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Literal

from gpu_plan.planner.plain.values import dataclass

Verdict = Literal["fits", "tight", "no"]
"""`fits`: the high end is within capacity; `tight`: the interval straddles it; `no`: beyond it, or unusable."""
Evidence = Literal["traced", "source", "measured", "assumed"]
"""What a figure rests on: the traced step, the real implementation's source, a measurement, or neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyChoice:
    """How one job is spread over the devices. Degrees multiply to the world size."""

    name: str
    """As in `--strategy`."""
    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    dp_replicate: int = 1
    """Whole sharded copies, each over as many ranks; 1 also in older files."""
    zero_stage: int = 0
    """What data parallel ranks share out: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters."""
    offload: str = "none"
    micro_batch_size: int
    """Samples per forward pass on one data-parallel rank."""
    gradient_accumulation_steps: int = 1
    checkpointing: str = "none"
    checkpoint_every: int = 1
    """Of so many layers one is checkpointed; 1, all of them, also where none is and in older files."""
    reshards: bool = True
    """Whether ranks that share a model's weights give up what they gathered after forward; FSDP2's alone may not."""
    expandable_segments: bool = False
    """Whether segments of CUDA's allocator grow, because the search or the user set it."""
    precision: str
    schedule: str = ""
    """Of a pipeline, as in `--schedule`; empty without one, and in older files."""
    virtual_stages: int = 1
    """Stages on each rank of a pipeline."""
    global_batch_size: int = field(init=False)
    """Samples per optimizer step."""
    world_size: int = field(init=False)

    def __post_init__(self) -> None:
        _at_least(self, 1, "data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel")
        _at_least(self, 1, "expert_parallel", "dp_replicate", "micro_batch_size", "gradient_accumulation_steps")
        if self.zero_stage not in (0, 1, 2, 3):
            raise ValueError(f"zero_stage is {self.zero_stage}, not 0 to 3")
        batch = self.micro_batch_size * self.data_parallel * self.gradient_accumulation_steps
        object.__setattr__(self, "global_batch_size", batch)
        # Expert parallel ranks are drawn from the data parallel ones: they add no devices.
        devices = self.data_parallel * self.tensor_parallel * self.pipeline_parallel * self.context_parallel
        object.__setattr__(self, "world_size", devices)

    @property
    def loop_batch_size(self) -> int:
        """Samples that a training loop gives its model in one call: in stages, all micro batches of a step."""
        return self.micro_batch_size * (self.gradient_accumulation_steps if self.pipeline_parallel > 1 else 1)

    @property
    def loop_steps(self) -> int:
        """Backward passes of a training loop that make one optimizer step: in stages, the schedule's one call."""
        return 1 if self.pipeline_parallel > 1 else self.gradient_accumulation_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPeak:
    """Bytes standing at the peak of allocated memory, each tensor charged its allocator block."""

    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    temporary: int = 0
    communication: int = 0
    buffers: int = 0
    inputs: int = 0
    kv_cache: int = 0

    def __post_init__(self) -> None:
        _at_least(self, 0, *CATEGORY_NAMES)

    @property
    def total(self) -> int:
        return sum(self.items().values())

    def items(self) -> dict[str, int]:
        """Bytes by category, in the order in which they are shown."""
        return {name: getattr(self, name) for name in CATEGORY_NAMES}


CATEGORY_NAMES: tuple[str, ...] = tuple(entry.name for entry in fields(AtPeak))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideAllocator:
    """Bytes on the device that torch's allocator does not know of."""

    cuda_context: int = 0
    nccl: int = 0

    def __post_init__(self) -> None:
        _at_least(self, 0, "cuda_context", "nccl")

    @property
    def total(self) -> int:
        return self.cuda_context + self.nccl


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainTerm:
    """A part of the device's memory that is not known exactly, in bytes, with what it rests on."""

    name: str
    bytes: int
    low_bytes: int
    high_bytes: int
    basis: Evidence
    source: str | None = None

    def __post_init__(self) -> None:
        _ordered(self.name, self.low_bytes, self.bytes, self.high_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFigures:
    """RAM that the ranks of one node take, of the node that holds rank 0; bytes. Mapped files are not counted."""

    load_bytes: int
    """Once the weights are read, before they are on the devices."""
    step_bytes: int
    """What is offloaded."""
    save_bytes: int
    """While the whole weights are saved; a sharded checkpoint alone takes the low end of its term."""
    terms: tuple[UncertainTerm, ...] = ()
    """The same three with their intervals, what they rest on and where that was read."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "load_bytes", "step_bytes", "save_bytes")

    @property
    def most_bytes(self) -> int:
        """At the worst of the three moments; what is offloaded stays while weights are saved."""
        return max(self.load_bytes, self.step_bytes + self.save_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """Memory of the worst rank, in bytes, on a device without limit."""

    peak_allocated_bytes: int
    """As `torch.cuda.max_memory_allocated`."""
    peak_reserved_bytes: int | None = None
    """As `torch.cuda.max_memory_reserved`; None where the allocator was not simulated."""
    device_used_bytes: int
    """As `nvidia-smi` shows it."""
    device_used_low_bytes: int
    device_used_high_bytes: int
    capacity_bytes: int
    headroom_bytes: int = field(init=False)
    """Capacity less `device_used_bytes`; negative where it does not fit."""
    phase_of_peak: str
    at_peak: AtPeak
    outside_allocator: OutsideAllocator = field(default_factory=OutsideAllocator)
    uncertain: tuple[UncertainTerm, ...] = ()
    at_rest_bytes: int
    """Allocated between two steps."""
    phase_peaks: Mapping[str, int] = field(default_factory=dict)
    """Most allocated bytes in each phase of a run: `load`, `forward`, `backward`, `optimizer step`."""
    host_bytes: int = 0
    """RAM of one rank for what is offloaded."""
    host: HostFigures | None = None
    """RAM of a node by moment; None on CPU ranks, and in plans that older versions saved."""
    nvme_bytes: int = 0
    num_alloc_retries: int = 0
    """How often the allocator must give cached memory back to live within the capacity (two iterations)."""
    rank: int = 0
    """The worst rank."""

    def __post_init__(self) -> None:
        _at_least(
            self, 0, "at_rest_bytes", "host_bytes", "nvme_bytes", "num_alloc_retries", "rank", "device_used_low_bytes"
        )
        _at_least(self, 1, "capacity_bytes")
        if self.at_peak.total != self.peak_allocated_bytes:
            raise ValueError(
                f"at_peak sums to {self.at_peak.total}, peak_allocated_bytes is {self.peak_allocated_bytes}"
            )
        if self.at_rest_bytes > self.peak_allocated_bytes:
            raise ValueError(f"at_rest_bytes {self.at_rest_bytes} is above the peak, {self.peak_allocated_bytes}")
        if max(self.phase_peaks.values(), default=0) > self.peak_allocated_bytes:
            raise ValueError(f"phase_peaks go beyond the peak, {self.peak_allocated_bytes}")
        if self.peak_reserved_bytes is not None and self.peak_reserved_bytes < self.peak_allocated_bytes:
            raise ValueError(f"peak_reserved_bytes {self.peak_reserved_bytes} is below the allocated peak")
        _ordered("device_used", self.device_used_low_bytes, self.device_used_bytes, self.device_used_high_bytes)
        if self.device_used_bytes < self.peak_allocated_bytes + self.outside_allocator.total:
            raise ValueError(
                f"device_used_bytes {self.device_used_bytes} is below peak_allocated and outside_allocator"
            )
        object.__setattr__(self, "headroom_bytes", self.capacity_bytes - self.device_used_bytes)

    @property
    def verdict(self) -> Verdict:
        """What the interval says against the capacity."""
        if self.device_used_high_bytes <= self.capacity_bytes:
            return "fits"
        return "tight" if self.device_used_low_bytes <= self.capacity_bytes else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """What one rank of a pipeline holds and takes; the ranks with the same place in other pipelines take as much."""

    rank: int
    """Place in the pipeline, from 0."""
    layers: tuple[tuple[int, int], ...]
    """First layer and the one behind the last, of each of its stages."""
    embedding: bool
    head: bool
    """Whether it holds the final norm and the head."""
    parameters: int
    """Elements of its stages, whole."""
    in_flight: int
    """Most micro batches, over its stages, whose activations stand at once."""
    peak_allocated_bytes: int
    phase_of_peak: str
    at_peak: AtPeak
    busy_seconds: float
    """Of a step in which it computes, or waits for ranks that compute its stage too; else it waits for other stages."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "rank", "parameters", "in_flight", "peak_allocated_bytes")
        if self.at_peak.total != self.peak_allocated_bytes:
            raise ValueError(
                f"at_peak sums to {self.at_peak.total}, peak_allocated_bytes is {self.peak_allocated_bytes}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """What the ranks of one kind take, where parts of the model cannot be shared out evenly."""

    ranks: tuple[tuple[int, int], ...]
    """First and last of each run of them, in one replica."""
    replicas: int
    """Of which each has as many."""
    parameters: int
    """Elements that one of them keeps, padding left out."""
    peak_allocated_bytes: int
    device_used_bytes: int
    phase_of_peak: str
    at_peak: AtPeak

    @property
    def count(self) -> int:
        """Ranks of this kind in one replica."""
        return sum(last - first + 1 for first, last in self.ranks)

    def __post_init__(self) -> None:
        _at_least(self, 0, "parameters", "peak_allocated_bytes", "device_used_bytes")
        if self.at_peak.total != self.peak_allocated_bytes:
            raise ValueError(
                f"at_peak sums to {self.at_peak.total}, peak_allocated_bytes is {self.peak_allocated_bytes}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdedFigures:
    """A rank whose experts are chosen more often than others': the plan's own figures count with even choices."""

    most_times: float
    """Tokens that a rank can get at most, as a multiple of its even share."""
    borne_times: float
    """The multiple for which its device has room, at least; `most_times` where all of it fits."""
    peak_allocated_bytes: int
    """At most."""
    device_used_bytes: int
    step_seconds: float
    """With the rank that gets the most, for which all others wait."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "peak_allocated_bytes", "device_used_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeFigures:
    """What one degree costs in an optimizer step of a rank, and what it is good for."""

    axis: str
    """`tensor`, `expert`, `context`, `data`, `replicas`, or `host` for what is offloaded."""
    ranks: int | None
    """Of a group; None for `host`."""
    calls: int
    sent_bytes: int
    """Of the tensors that pass through its collectives."""
    seconds: float
    """Of all its transfers."""
    exposed_seconds: float
    """By which the step would be shorter without them."""
    without: str | None = None
    """The plan of the same job without this degree, in words: otherwise alike where that fits; `nothing fits`; None
    where none was looked for (`--explain` looks)."""
    without_device_used_bytes: int | None = None
    without_samples_per_second: float | None = None

    def __post_init__(self) -> None:
        _at_least(self, 0, "calls", "sent_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedFigures:
    """Expected speed of one optimizer step, accumulation included."""

    step_seconds: float
    step_seconds_low: float
    step_seconds_high: float
    tokens_per_second_per_gpu: float | None
    """None for models without a sequence."""
    samples_per_second: float
    """Of the whole job."""
    mfu: float | None
    """Model FLOPs utilisation, 0 to 1; None where the device's peak is unknown."""
    basis: Evidence
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds per step by cause; overlapped parts need not sum to the step."""
    scaling: str | None = None
    """Why so many devices are not so many times as fast as one, in words; None for one device."""
    degrees: tuple[DegreeFigures, ...] = ()
    """What each degree sends; empty for one device, of a pipeline, and in plans that older versions saved."""

    def __post_init__(self) -> None:
        rates = [self.tokens_per_second_per_gpu, self.samples_per_second, self.mfu, *self.parts.values()]
        for value in rates:
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"a speed of {value} is invalid")
        if not (math.isfinite(self.step_seconds_high) and self.step_seconds > 0):
            raise ValueError(f"a step of {self.step_seconds} seconds is invalid")
        _ordered("step_seconds", self.step_seconds_low, self.step_seconds, self.step_seconds_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLine:
    """Equal tensors that stand at the peak."""

    bytes: int
    """Of all `count` tensors together."""
    count: int = 1
    category: str
    module: str
    """Qualified name; `*` stands for the index of repeated blocks."""
    operator: str | None
    shape: tuple[int, ...]
    dtype: str
    phase: str
    basis: Evidence = "traced"
    origin: str | None = None
    """Line of the user's own script that made them, such as `train.py:88`."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "bytes")
        _at_least(self, 1, "count")
        if self.category not in CATEGORY_NAMES:
            raise ValueError(f"category {self.category!r} is not one of {', '.join(CATEGORY_NAMES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePrice:
    """What one device is rented for, on demand."""

    usd_per_hour: float
    provider: str
    date: str
    source: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_per_hour) and self.usd_per_hour >= 0):
            raise ValueError(f"a price of {self.usd_per_hour} is invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """A whole job of so many tokens."""

    tokens: int
    hours: float
    gpu_hours: float
    usd: float | None = None
    """None where nobody printed a price."""
    interruptions: float | None = None
    """Failures to be expected on so many devices, as published of long runs; None in plans of older versions."""
    checkpoint_every_seconds: float | None = None
    """As often as costs least with so many failures."""
    overhead_hours: float | None = None
    """Checkpoints, steps that are run again and restarts, beside `hours`. Data loading is left out."""
    evaluation_hours: float | None = None
    """Evaluations every so many steps, beside `hours`; None where it was not said how often and how much."""
    weights_bytes: int | None = None
    """What the trained weights, or the adapters alone, take on disk; None in plans of older versions."""
    checkpoint_bytes: int | None = None
    """The same with the optimizer's state: what a run goes on from."""


def _at_least(figures: object, least: int, *names: str) -> None:
    for name in names:
        if getattr(figures, name) < least:
            raise ValueError(f"{name} is {getattr(figures, name)}, below {least}")


def _ordered(name: str, low: float, middle: float, high: float) -> None:
    if not 0 <= low <= middle <= high:
        raise ValueError(f"{name}: low {low}, expected {middle} and high {high} are out of order")
